"""The way of a request to the leader of its shard.

Start at `router.py`: what this store's own replica leads goes into its intake, what may be
forwarded goes to the leader's store, the rest is told who leads. `forwarding.py` has the byte forms
of forwarded requests. NodeHost and the simulator's rogue stores may import it.
"""
