"""Nobody on the peer port stops a store, takes the place of a known one, or exhausts its memory.

The budget (docs/operations/peer-port.md): all strangers together cost a store at most
STRANGERS_MIB, whatever they do and for however long. A frame that a rogue store announces costs
only the bytes that arrive.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
from functools import partial
from pathlib import Path

import pytest

from logservice.bounds import PEER_FRAME_BYTES_MAX, PEER_STORE_CONNECTIONS_MAX
from logservice.nodehost.transport.wire.frame import FrameKind
from tests.hostile.peer_port import GONE, Comer, Target, all_at_once, announced, held, until_taken
from tests.hostile.victim import LegalClient, attacked, resident_mib, three_times

pytestmark = pytest.mark.processes

STRANGERS_MIB = 96
"""192 places with a third of a MiB of TLS buffers each, and what the allocator keeps of them."""

ANNOUNCED_MIB = 64
"""One store may have 8 connections, each with buffers of 512 KiB and a frame of which one MiB has
arrived. Twice as much is held while a buffer grows, and connections that were replaced a moment ago
count as well."""

CONNECTIONS = 150
"""Connections of each attack at a time. There are six attacks, so this is several times the number
of places."""

LET_IN_PER_FAILURE = 4
"""Of five attempts of a store one may come to nothing: it stands in the kernel's queue behind all
strangers of that moment, and a newer connection from its own address may end it. One in thirty did
when this was written; where newcomers were refused as long as the places were taken, it was
nineteen in twenty."""


def test_strangers_cost_bounded_memory_and_shut_nobody_out(tmp_path: Path) -> None:
    """Memory and descriptors stay bounded, a store is let in, and a client notices nothing."""
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
        assert comer.welcomed >= LET_IN_PER_FAILURE * max(1, comer.failed)
        assert target.figure("peer_strangers_turned_away_total") > 0


def test_a_rogue_that_announces_large_frames(tmp_path: Path) -> None:
    """A rogue has a certificate and no membership: a frame of 64 MiB costs only what arrives of
    it.
    """
    with attacked(tmp_path / "cluster") as cluster:
        target = Target(cluster, "store-1")
        context = target.rogue()

        def announce(count: int) -> None:
            with contextlib.ExitStack() as opened:
                for _ in range(count):
                    with contextlib.suppress(*GONE):
                        one = opened.enter_context(target.greeted(context))
                        one.sendall(announced(FrameKind.MESSAGES, PEER_FRAME_BYTES_MAX))
                        one.sendall(bytes(1 << 20))
                until_taken(target, min(count, PEER_STORE_CONNECTIONS_MAX) << 20)

        with LegalClient(cluster) as client:
            before = resident_mib(target.pid)
            peaks = asyncio.run(
                three_times(
                    target.pid,
                    partial(asyncio.to_thread, announce, 40),
                    lambda: target.figure("peer_partial_bytes") == 0,
                )
            )
        print(f"{before:.0f} MiB, attacked {[round(one) for one in peaks]} MiB")
        client.seen.check(least=50)
        assert max(peaks) - before <= ANNOUNCED_MIB
        assert target.figure("peer_replaced_total") >= 40 - PEER_STORE_CONNECTIONS_MAX


def test_without_descriptors_strangers_go_first(tmp_path: Path) -> None:
    """Strangers would fill the table of descriptors: a peer with a certificate still gets in, and
    the loop does not spin on connections that it cannot accept. It has six descriptors for all, so
    one that comes while the strangers do may have to come again, as a store does.
    """
    with attacked(tmp_path / "cluster") as cluster:
        target = Target(cluster, "store-1")
        limits = resource.prlimit(target.pid, resource.RLIMIT_NOFILE)
        used = max(int(one) for one in os.listdir(f"/proc/{target.pid}/fd"))
        with LegalClient(cluster) as client:
            resource.prlimit(target.pid, resource.RLIMIT_NOFILE, (used + 6, limits[1]))
            try:
                with Comer(target) as comer:
                    held(target, 120, b"")
            finally:
                resource.prlimit(target.pid, resource.RLIMIT_NOFILE, limits)
        print(f"let in {comer.welcomed} times, not {comer.failed}")
        assert comer.welcomed >= LET_IN_PER_FAILURE * max(1, comer.failed)
        client.seen.check(least=10)
        assert target.figure("peer_strangers_turned_away_total") > 0


def test_a_rogue_that_comes_again_and_again(tmp_path: Path) -> None:
    """Connections that a store closed, or that its newer ones replaced, leave nothing behind."""
    with attacked(tmp_path / "cluster") as cluster:
        target = Target(cluster, "store-1")
        context = target.rogue()

        def come(count: int) -> None:
            with contextlib.ExitStack() as opened:
                for number in range(count):
                    one = target.greeted(context)
                    if number % 2:
                        opened.enter_context(one)
                    else:
                        one.close()

        before = resident_mib(target.pid)
        peaks = asyncio.run(
            three_times(
                target.pid,
                partial(asyncio.to_thread, come, 100),
                lambda: target.figure("peer_strangers") == 0,
            )
        )
        print(f"{before:.0f} MiB, attacked {[round(one) for one in peaks]} MiB")
        assert max(peaks) - before <= ANNOUNCED_MIB
        assert target.figure("peer_replaced_total") > 0
