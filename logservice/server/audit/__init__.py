"""The audit log: who did what to which shard, in files that cannot be changed unseen.

`edge/` writes into it, `cli` verifies it; it imports nothing of the server. Start with `log.py`;
`chain.py` has the form of a line, `trail.py` the thread that writes, `flooding.py` what keeps one
identity from pushing out the lines of others.
"""
