"""How stores talk to each other: `seam.Transport`, over TCP (`tcp`) or in memory (`memory`).

From the bytes up: `codec` (messages), `control` (handshake, requests), `frame` (framing,
checksums), `send_queue` (what waits for the socket), `connection` (one socket), `line` (the dialer
towards one store), `tcp` (the listener and the whole).
"""
