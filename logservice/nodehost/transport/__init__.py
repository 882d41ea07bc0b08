"""How stores talk to each other: one connection per pair, all shards' messages together.

`seam.py` says what a transport is (start there), `tcp.py` is the real one, `memory.py` the one for
tests. Below them: `wire/` the bytes, `link/` one socket, `accepting/` the side that listens,
`dialing/` the side that connects. The rest of `nodehost/` imports the seam; only those who build a
store, and tests, import an implementation.
"""
