"""The audit log: who did what to which shard, in files that cannot be changed unseen.

`edge/` writes into it, and `cli` verifies it; it imports nothing of the server. Start with
`log.py`. `chain.py` has the form of a line, `trail.py` has the thread that writes, and
`flooding.py` keeps one identity from pushing out the lines of others.
"""
