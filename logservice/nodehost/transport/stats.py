"""TransportStats: what a transport has done, for metrics and tests. Counters only grow."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class TransportStats:
    """Totals since the start; the last two are what is there now. Bytes are those of frames."""

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
    connections: int = 0
    queued_bytes: int = 0
