"""Nobody on the peer port stops a store, takes a place of a known one, or its memory.

The budget (docs/operations/peer-port.md): all strangers together cost a store at most
STRANGERS_MIB, and one rogue store ROGUE_MIB, whatever they do and for however long.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from tests.hostile.peer_port import Comer, Target, all_at_once
from tests.hostile.victim import STALL_S_MAX, LegalClient, attacked, resident_mib, three_times

pytestmark = pytest.mark.processes

STRANGERS_MIB = 96
"""192 places with a third of a MiB of TLS buffers each, and what the allocator keeps of it."""

CONNECTIONS = 150
"""Of each attack at a time, of which there are six: several times the places there are."""


def test_strangers(tmp_path: Path) -> None:
    """Memory and descriptors are bounded, a store is let in, a client sees nothing of it."""
    with attacked(tmp_path / "cluster") as cluster:
        target = Target(cluster, "store-1")
        with LegalClient(cluster) as client, Comer(target) as comer:
            before = resident_mib(target.pid)
            peaks = asyncio.run(
                three_times(
                    target.pid,
                    partial(all_at_once, target, CONNECTIONS),
                    lambda: target.figure("peer_strangers") <= 1,
                )
            )
        print(f"{before:.0f} MiB, attacked {[round(one) for one in peaks]} MiB;", end=" ")
        print(f"p99 {client.seen.p99_s:.3f} s; let in {comer.welcomed} times, not {comer.failed}")
        client.seen.check(least=50)
        assert max(peaks) - before <= STRANGERS_MIB
        assert comer.welcomed > 0
        assert comer.stall_s <= STALL_S_MAX
        assert target.figure("peer_strangers_turned_away_total") > 0
