"""HAKeeper: the replicated state machine that knows what the cluster is and should be; pure.

`commands/` is what can be proposed and what is answered, byte by byte; `state.py` is what is
replicated. `stores/` takes reports in, `repair/` finds what is wrong and mends it, `answers/` is
what others may look up. `rsm.py` puts them together: start reading there, then
`stores/heartbeats.py` and `repair/check.py`. `nodehost/` and what lies above it may import all.
"""
