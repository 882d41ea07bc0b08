"""One socket between two stores, whoever opened it.

`connection.py` sends and receives frames (start there), `send_queue.py` orders what waits for the
socket, `peer_tls.py` proves who is at the other end, `reserve.py` keeps descriptors for it,
`stats.py` counts. Imported by the transports only; it imports `wire/`.
"""
