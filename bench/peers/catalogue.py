"""The peers, in the order of the report."""

from __future__ import annotations

from typing import Final

from bench.peers.peer import Running

PEERS: Final[tuple[tuple[str, Running], ...]] = ()
"""A short key, by which one is chosen, and what starts it."""
