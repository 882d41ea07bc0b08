"""Exact truncation: what a replica still holds of what the truncation LSN covers.

It is asked when nothing fails any more and nobody truncates: INV-T4 promises that two visits leave
no whole entry that is covered, but for what a leader keeps for active members. A member may have
been behind when the leader was visited, and not any more when it is looked at (seed 15000086). So
what is held has to go within a few rounds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from logservice.ids import Index
from logservice.nodehost.replica.replica import Replica
from logservice.nodehost.truncation.alignment import last_truncated
from logservice.nodehost.truncation.steps import Step
from logservice.nodehost.truncation.worker import TruncationWorker
from logservice.sim.interfaces import ObservedStore

_VISITS = 3
"""One more than INV-T4 says: a damaged export is found by a visit that does nothing else."""
_ROUNDS = 4
_ROUND_S = 2.0
_WAIT_S = 0.1


async def covered_and_held(stores: Iterable[ObservedStore]) -> str:
    """Have every worker visit its replicas; then say what a replica still holds, or nothing."""
    held = ""
    for number in range(_ROUNDS):
        await asyncio.sleep(number * _ROUND_S)
        held = await _held_after_visits(stores)
        if not held:
            break
    return held


async def _held_after_visits(stores: Iterable[ObservedStore]) -> str:
    found = [store for store in stores if store.up and store.parts is not None]
    for store in found:
        for worker in store.parts.workers if store.parts is not None else ():
            for _ in range(_VISITS):
                await _visit(worker)
    for store in found:
        for replica in store.replicas():
            if replica.log_rsm is None or replica.log.installed is None:
                continue
            if held := await _held(replica):
                return f"{store.store_id}: {held}"
    return ""


async def _visit(worker: TruncationWorker) -> None:
    while True:
        report = await worker.run_once()
        if Step.ALREADY_RUNNING in report.counts:
            await asyncio.sleep(_WAIT_S)
        elif not report.more:
            return


async def _held(replica: Replica) -> str:
    info = replica.info()
    behind = [match for member, match in info.match if member in info.recently_active]
    covered = await last_truncated(replica, info.truncated_lsn)
    first = info.first_index
    if Index(min([covered, *behind])) < first:
        return ""
    return (
        f"shard {info.shard} still has entries {first} to {covered}, which the truncation LSN"
        f" {info.truncated_lsn} covers; members have {info.match}"
    )
