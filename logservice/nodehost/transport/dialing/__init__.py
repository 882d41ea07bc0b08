"""The side that connects: a line towards each store, dialed at once and kept.

`line.py` dials, redials and asks (start there); `resolve.py` looks names up without holding a
thread. Imported by `tcp.py` only; it imports `link/` and `wire/`.
"""
