"""steady: rows of an open loop, ours and etcd's: requests at a fixed rate, whatever was answered.

etcd is driven by the same client, so that both sides pay for it alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Protocol, runtime_checkable

from logservice_client import LogClient

from bench.load.closed_loop import Request
from bench.load.open_loop import measure_at
from bench.peers.peer import Peer, Workload
from bench.rows.appends import NotTaken, alone, peer_bouts
from bench.rows.ledger import Ledger, tails
from bench.rows.ours import SHARD, Ours, running
from bench.rows.row import OURS, Bout, Figure, Setting, Turn, figure_of

CLOSED = Workload(256, 256)
"""The closed loop whose rate a share is taken of."""


@runtime_checkable
class Requesting(Protocol):
    """A peer whose requests can be sent one by one."""

    def callers(self, workload: Workload) -> AbstractAsyncContextManager[list[Request]]:
        """The requests of a workload."""


@contextmanager
def steady(per_s: float, setting: Setting) -> Iterator[list[Bout]]:
    """Requests of 256 B. `per_s` below 1: that share of what each side's own closed loop
    reached.
    """
    with running(setting.directory / OURS) as ours:
        rates: dict[str, float] = {}

        async def mine() -> Figure:
            if OURS not in rates:
                rates[OURS] = per_s if per_s >= 1 else per_s * await _closed(ours, setting)
            return await _ours_at(ours, rates[OURS], setting)

        def turn_of(peer: Peer) -> Turn:
            if not isinstance(peer, Requesting):
                raise NotTaken(f"{peer.name} has no open loop")

            async def turn() -> Figure:
                if peer.name not in rates:
                    closed = await peer.sample(CLOSED, **setting.span)
                    rates[peer.name] = per_s if per_s >= 1 else per_s * closed.rate
                async with peer.callers(Workload(1, CLOSED.size)) as (put, *_):
                    sample = await measure_at(put, rates[peer.name], **setting.span)
                return figure_of(sample, asked=rates[peer.name])

            return turn

        yield [*peer_bouts(setting, [CLOSED], mine, turn_of), alone(mine, fallback=True)]


async def _closed(ours: Ours, setting: Setting) -> float:
    figure = await ours.appends(CLOSED, **setting.span)
    return figure.values["rate"]


async def _ours_at(ours: Ours, per_s: float, setting: Setting) -> Figure:
    ledger = Ledger(CLOSED.size)
    async with LogClient(ours.cluster.endpoints()) as reader:
        before = await tails(reader, [SHARD])
        async with ours.callers(Workload(1, CLOSED.size), ledger) as (append,):
            sample = await measure_at(append, per_s, **setting.span)
        return figure_of(sample, await ledger.check(reader, before), asked=per_s)
