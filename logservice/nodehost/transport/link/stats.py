"""TransportStats: what a transport has done, for metrics and tests. Counters only grow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CROWDED_ALARM: Final = "peer port crowded"
"""How the alarm of an attack on the peer port begins."""


@dataclass(slots=True)
class TransportStats:
    """Totals since the start; the last four are what is there now. Bytes are those of frames.

    strangers: accepted connections that have not proved which store they are; turned away: those
    that had to go for others before they could. replaced: connections of known stores that had to
    go for newer ones. partial_bytes: of frames and snapshots that are not whole.
    """

    bytes_sent: int = 0
    bytes_received: int = 0
    frames_sent: int = 0
    frames_received: int = 0
    messages_sent: int = 0
    messages_received: int = 0
    messages_dropped: int = 0
    requests_sent: int = 0
    requests_served: int = 0
    connects: int = 0
    connect_failures: int = 0
    disconnects: int = 0
    refused: int = 0
    corrupt_frames: int = 0
    silent_peers: int = 0
    round_trip_us: int = 0
    strangers_turned_away: int = 0
    replaced: int = 0
    partial_cuts: int = 0
    snapshots_too_large: int = 0
    strangers: int = 0
    partial_bytes: int = 0
    connections: int = 0
    queued_bytes: int = 0
