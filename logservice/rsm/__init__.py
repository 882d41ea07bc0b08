"""The state machine of a log shard: pure, deterministic and small; no user record is ever in it.

It imports layer 0 only. `nodehost` applies committed entries to it and asks it before it proposes.
Start with `log_rsm.py` (the order in which an entry is judged); then `state.py` (what is
replicated), `commands.py`, `sessions.py`, `snapshot_codec.py`, `queries.py`. `admission.py` is the
leader's judgement before a block gets its LSN. `witness.py` is what a voter without records runs.
"""
