"""Soft bounds between stores (`nodehost/transport/`)."""

from __future__ import annotations

from typing import Final

PEER_FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of a frame between stores; a peer that sends a larger one is broken or hostile."""

PEER_FRAME_FIRST_BYTES: Final = 2 * 1024 * 1024
"""The first buffer of a frame that does not fit the receive buffer; it doubles as bytes arrive.
Twice PEER_FRAME_BYTES_TARGET: what a busy leader sends is never copied for growing."""

PEER_FRAME_TICKS_MAX: Final = 60
"""One frame may take the time of so many pings to arrive whole; a peer that trickles it is cut."""

PEER_SNAPSHOT_CHUNK_BYTES: Final = 1024 * 1024
"""A larger snapshot travels in frames of this size, between which other messages find a place."""

PEER_SNAPSHOT_BYTES_MAX: Final = 256 * 1024 * 1024
"""Bytes of a snapshot between stores. Sender and receiver hold it whole in memory."""

PEER_PARTIAL_STORE_BYTES_MAX: Final = PEER_SNAPSHOT_BYTES_MAX + PEER_FRAME_BYTES_MAX
"""Bytes of frames and snapshots of one store that are not whole yet, over all its connections: one
of each at its largest."""

PEER_PARTIAL_BYTES_MAX: Final = 768 * 1024 * 1024
"""Bytes of frames and snapshots of all stores that are not whole yet. It is more than twice what
one store may hold, so that a store that hoards them is cut before another one that needs as
much."""

PEER_QUEUE_BYTES_MAX: Final = 128 * 1024 * 1024
"""Unsent bytes to one store; beyond it messages are dropped, and Raft sends them again."""

PEER_QUEUES_BYTES_MAX: Final = 768 * 1024 * 1024
"""Unsent bytes to all stores. A snapshot of the largest size finds room beside 256 MiB of
others."""

PEER_CONNECT_TIMEOUT_S: Final = 2.0
"""How long the side that was dialled may take to say who it is, and as long for the side that
dialled."""

PEER_REQUESTS_INFLIGHT_MAX: Final = 65_536
"""Requests to one store without an answer yet."""

PEER_REQUEST_BYTES_MAX: Final = 256 * 1024 * 1024
"""Bytes of one store's requests that are being served: four of the largest requests."""

PEER_REQUESTS_BYTES_MAX: Final = 512 * 1024 * 1024
"""Bytes of all stores' requests that are being served. One store that hoards leaves half of it,
more than three of the largest requests."""

PEER_REQUEST_TIMEOUT_MAX_S: Final = 600.0
"""A request is given up after so long, whatever deadline it came with."""

PEER_FRAME_BYTES_TARGET: Final = 1024 * 1024
"""A frame of several messages is closed at this size, so that urgent messages wait for at most one
such frame."""

PEER_BULK_MESSAGE_BYTES: Final = 64 * 1024
"""A message or request of at least this size waits behind the small ones of other shards."""

PEER_HELLO_BYTES_MAX: Final = 4096
"""Bytes of a frame before the handshake: whoever has not said who it is may not make us
allocate more."""

PEER_SOCKET_BYTES: Final = 256 * 1024
"""Bytes handed to the socket beyond what it takes at once; urgent messages can overtake the
rest."""

PEER_BACKOFF_FIRST_S: Final = 0.02
PEER_BACKOFF_MAX_S: Final = 0.4
"""The first and the longest pause between two dials, before a jitter of a quarter: a store that
comes back is found within 500 ms."""

PEER_REFUSED_PAUSE_S: Final = 5.0
"""The pause after the other side said that it belongs to another cluster: somebody must change an
address first."""

PEER_STRANGERS_MAX: Final = 64
"""Accepted connections that have not said who they are, in all. Each may cost a TLS handshake's
buffers, a third of a MiB."""

PEER_STRANGERS_PER_ADDRESS_MAX: Final = 16
"""Such connections from one address, or one /64 of IPv6: a single host does not fill all places."""

PEER_ARRIVALS_MAX: Final = 128
"""Such connections from addresses of known stores, which have places of their own: strangers from
elsewhere take none of those."""

PEER_ARRIVALS_PER_ADDRESS_MAX: Final = 32
"""Such connections from one address of known stores: all stores of a host that was just restarted
dial at once."""

PEER_ACCEPTS_PER_PASS_MAX: Final = 2
"""Connections accepted before the loop does something else: each may cost a signature. In a full
lobby a newcomer ends the oldest connection, so this number also bounds how soon that can happen:
after PEER_ARRIVALS_PER_ADDRESS_MAX / PEER_ACCEPTS_PER_PASS_MAX passes of the loop, which is more
than a handshake takes that goes on."""

PEER_BACKLOG_MAX: Final = 1024
"""Connections that the kernel holds until they are accepted."""

PEER_ACCEPT_PAUSE_S: Final = 0.05
"""The pause when there is no descriptor to accept a connection with, not even to hang up."""

PEER_STORE_CONNECTIONS_MAX: Final = 8
"""Accepted connections of one store: its two lanes, a question to a bare address, and for each of
them the connection that it replaces. One more ends the store's own oldest."""

PEER_NEWCOMERS_MAX: Final = 64
"""Accepted connections of all stores together that this one does not know yet, and that ask to be
let in. One more ends the oldest such connection."""

PEER_CROWD_REPORT_S: Final = 60.0
"""Connections that were turned away are an alarm for so long, and at most one line of the log in
that time."""

PEER_RESERVED_DESCRIPTORS: Final = 16
"""Held back for dialing known stores when the process has no other descriptor left."""

PEER_PING_INTERVAL_S: Final = 1.0
"""Between two pings of a connection."""

PEER_SILENT_PINGS_MAX: Final = 5
"""A peer that sent no byte for so many pings in a row is dead or paused; its connection is cut."""

PEER_SILENT_INBOUND_PINGS_MAX: Final = 15
"""Such pings on the accepted side, which waits for the dialer's pings and is three times as
patient."""

PEER_IDLE_ADDRESS_S: Final = 30.0
"""A connection to an address of no known store is closed when it is unused for this long."""
