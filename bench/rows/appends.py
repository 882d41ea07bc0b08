"""appends: rows in which callers append single records, beside every peer that takes the workload.

Each peer has a bout of its own, and ours is measured anew in it: a ratio is of two windows that
follow each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial

from bench.peers.catalogue import PEERS
from bench.peers.peer import Peer, Running, Workload
from bench.probes.raw_disk import raw_files
from bench.rows.ours import running
from bench.rows.row import OURS, Bout, Figure, Setting, Turn, figure_of

DISK = "raw disk"
QUICK_SHARDS = 100


class NotTaken(Exception):
    """The peer has nothing comparable to a workload."""


@contextmanager
def appends(workload: Workload, setting: Setting, *, disk: bool = False) -> Iterator[list[Bout]]:
    """A row of one workload. `disk`: the raw disk's small writes are a side, too."""
    if workload.shards > QUICK_SHARDS:
        shards = int(setting.size(workload.shards, QUICK_SHARDS, "shards"))
        workload = replace(workload, shards=shards)
    with running(setting.directory / OURS, workload.shards) as ours:
        mine = partial(ours.appends, workload, **setting.span)
        bouts = peer_bouts(setting, [workload], mine, lambda peer: theirs(peer, workload, setting))
        if disk:
            bouts.insert(0, Bout(DISK, lambda: _beside_disk(setting, mine)))
        yield [*bouts, alone(mine, fallback=True)]


def alone(mine: Turn, *, fallback: bool = False) -> Bout:
    """Ours without anything beside it."""

    @contextmanager
    def opened() -> Iterator[Mapping[str, Turn]]:
        yield {OURS: mine}

    return Bout("", opened, fallback)


def peer_bouts(
    setting: Setting,
    workloads: list[Workload],
    mine: Turn,
    turn_of: Callable[[Peer], Turn],
) -> list[Bout]:
    """A bout for each peer that is wanted."""

    def opener(key: str, run: Running) -> Callable[[], AbstractContextManager[Mapping[str, Turn]]]:
        @contextmanager
        def opened() -> Iterator[Mapping[str, Turn]]:
            directory = setting.directory / key
            directory.mkdir()
            with run(directory) as peer:
                if not all(peer.takes(workload) for workload in workloads):
                    raise NotTaken(f"{peer.name} has nothing comparable")
                turns = {OURS: mine, peer.name: turn_of(peer)}
                setting.notes.append(f"{peer.name} acks: {peer.acks}")
                yield turns

        return opened

    return [
        Bout(key, opener(key, run))
        for key, run in PEERS
        if setting.peers is None or key in setting.peers
    ]


def theirs(peer: Peer, workload: Workload, setting: Setting) -> Turn:
    """A peer's window of a workload."""

    async def turn() -> Figure:
        sample = await peer.sample(workload, **setting.span)
        return figure_of(sample, sample.records)

    return turn


@contextmanager
def _beside_disk(setting: Setting, mine: Turn) -> Iterator[Mapping[str, Turn]]:
    with raw_files(setting.directory, 1) as files:

        async def turn() -> Figure:
            return figure_of(await asyncio.to_thread(files.small_writes, setting.seconds / 3))

        yield {OURS: mine, DISK: turn}
