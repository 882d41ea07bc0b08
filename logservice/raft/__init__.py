"""The consensus core: Raft in etcd's model, a pure and deterministic state machine.

It has no I/O, no clock and no event loop, and imports nothing of ours but layer 0. `nodehost` runs
it, `sim` and `server` read its values; `rsm`, `hakeeper` and `logdb` do not know it.
Start with `core.py` (inputs, effects, dispatch), `ready.py` (the shell's duties) and `state.py`
(what a replica remembers). The rules are in `election.py`, `following.py` and `leading/`; then
come `membership/`, `tracker/` (what a leader knows of the others) and `log/`.
"""
