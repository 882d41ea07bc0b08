"""What a leader does: it takes proposals, replicates and commits them, serves reads, hands over.

Functions over `raft.state.State`; `core` dispatches to them by role, and `election` and `quiesce`
send through them. A replica that does not lead comes here only to pass a request on.
Start with `replication.py` (answers, commit, ticks) and `sending.py`; then `proposing.py`,
`reading.py`, `hand_over.py`.
"""
