"""The way of a request to the leader of its shard.

Start at `router.py`: a request goes into the intake of this store's own replica when that leads. It
goes to the leader's store when it may be forwarded, and else its caller is told who leads.
`forwarding.py` has the byte forms of forwarded requests. Leaders leave by `giving_way.py` (they
cannot apply) and `clock_leaving.py` (their store's clock is wrong). NodeHost and the simulator's
rogue stores may import it.
"""
