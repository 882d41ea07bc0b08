"""The peers, in the order of the report."""

from __future__ import annotations

from typing import Final

from bench.peers.bookkeeper import bookkeeper
from bench.peers.dragonboat import dragonboat
from bench.peers.etcd import etcd
from bench.peers.nats import servers as nats
from bench.peers.peer import Running
from bench.peers.pysyncobj import nodes as pysyncobj

PEERS: Final[tuple[tuple[str, Running], ...]] = (
    ("etcd-debian", etcd.debian),
    ("etcd", etcd.current),
    ("dragonboat", dragonboat.pebble),
    ("dragonboat-tan", dragonboat.tan),
    ("nats", nats.as_it_comes),
    ("nats-synced", nats.always_synced),
    ("bookkeeper", bookkeeper.running),
    ("pysyncobj", pysyncobj.running),
)
"""A short key, by which one is chosen, and what starts it."""
