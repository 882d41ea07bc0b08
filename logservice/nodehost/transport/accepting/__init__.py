"""The side that listens: from an accepted socket to a store that is heard.

In the order of a connection's life: `listener.py`, `lobby.py` (nobody has said yet who it is),
`inbound.py` (handshake and frames), `peer_account.py` (what one store may hold), and
`reception.py`, which holds them together (start there). Imported by `tcp.py` only; it imports
`link/` and `wire/`.
"""
