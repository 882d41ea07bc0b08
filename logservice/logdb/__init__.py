"""Log storage: every replica's log and state on one data directory, in shared segment files.

Knows neither asyncio nor raft's core; only `nodehost/`, `server/`, `cli/` and `sim/` import it.
Start with `log_db.py` (a commit group from begin to finish), then `plan.py` (which updates are
legal, and which records they become) and `segment_writer.py` (where the bytes go). `format/` is
what lies on disk, `recovery/` how a start reads it, `gc/` how space comes back; `index/`,
`checkpoint/` and `read/` serve readers.
"""
