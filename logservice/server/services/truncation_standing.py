"""truncation_standing: how truncation stands at the replicas of this store, for people.

Theory of operation. A page begins at a shard and ends behind so many replicas, so a store with
thousands answers in bounded messages, and whoever asks for one log asks for a page of one. What is
told is taken when it is asked for, from what the worker and log storage know anyway; nothing is
counted for it on the way of an append. Between two slices of replicas other work runs.

A replica is *stuck* when space that was asked for does not come: its worker sees no progress, a
hold keeps a truncation back, a half of its newest visit failed, or it does not run. What stays by a
rule and within its bound (`steps.Step`) is not stuck.
"""

from __future__ import annotations

import asyncio
import bisect
from collections.abc import Sequence
from typing import Final

from logservice_wire.v1 import admin_pb2

from logservice.bounds import TRUNCATION_PAGE_REPLICAS
from logservice.ids import HAKEEPER_SHARD, Index, ShardId
from logservice.nodehost.info import ReplicaInfo
from logservice.nodehost.node_host import NodeHost
from logservice.nodehost.truncation.steps import Step
from logservice.nodehost.truncation.worker import TruncationWorker
from logservice.rsm.queries import LogStatus, LogStatusQuery

_SLICE: Final = 64
"""Replicas between two turns of other work."""

_FAILED: Final = frozenset(
    {Step.DAMAGED_EXPORT, Step.INSTALL_FAILED, Step.EXPORT_FAILED, Step.HALTED}
)


async def page(
    host: NodeHost, workers: Sequence[TruncationWorker], request: admin_pb2.GetTruncationRequest
) -> admin_pb2.GetTruncationResponse:
    """The page that `request` asks for."""
    limit = min(request.limit or TRUNCATION_PAGE_REPLICAS, TRUNCATION_PAGE_REPLICAS)
    answer = admin_pb2.GetTruncationResponse(store_id=host.identity.store_id)
    shards = sorted({*host.replicas.running, *host.halts.all()})
    begin = bisect.bisect_left(shards, request.from_shard)
    for number, shard in enumerate(shards[begin:]):
        if number % _SLICE == _SLICE - 1:
            await asyncio.sleep(0)
        if len(answer.replicas) == limit:
            answer.next_shard = shard
            break
        found = _standing(host, workers, shard, stuck=request.stuck)
        if found is not None:
            answer.replicas.append(found)
    return answer


def of(
    host: NodeHost, workers: Sequence[TruncationWorker], shard: ShardId
) -> admin_pb2.TruncationStanding | None:
    """Of the replica of one shard here; None if there is none."""
    return _standing(host, workers, shard, stuck=False)


def _standing(
    host: NodeHost, workers: Sequence[TruncationWorker], shard: ShardId, *, stuck: bool
) -> admin_pb2.TruncationStanding | None:
    """Of the replica here; None if there is none, or if it is not stuck and `stuck` asks for it."""
    info = host.replicas.info(shard)
    if info is None:
        halted = host.halts.all().get(shard)
        if halted is None:
            return None
        return admin_pb2.TruncationStanding(
            shard_id=shard, replica_id=halted.replica, decision=Step.HALTED, error=halted.reason
        )
    worker = next((one for one in workers if one.serves(info)), None)
    if stuck and not _is_stuck(info, worker):
        return None
    found = admin_pb2.TruncationStanding(
        shard_id=shard,
        replica_id=info.replica,
        truncated_lsn=info.truncated_lsn,
        requested_lsn=info.requested_lsn,
        installed_index=info.first_index - 1,
    )
    installed = host.replicas.running[shard].log.installed
    if installed is not None:
        found.installed_lsn = max(0, installed.snapshot.next_lsn - 1)
    _put_hold(host, info, found)
    if worker is not None:
        _put_worker(host, worker, info, found)
    return found


def _is_stuck(info: ReplicaInfo, worker: TruncationWorker | None) -> bool:
    if info.halted or info.requested_lsn > info.truncated_lsn:
        return True
    if worker is None:
        return False
    key = (info.shard, info.replica)
    decision = worker.decisions.of(key)
    return bool(worker.stalled_visits(key)) or not _FAILED.isdisjoint(
        {decision.install, decision.export}
    )


def _put_hold(host: NodeHost, info: ReplicaInfo, found: admin_pb2.TruncationStanding) -> None:
    if info.shard == HAKEEPER_SHARD or info.halted or info.witness:
        return
    status = host.stale_lookup(info.shard, LogStatusQuery())
    if not isinstance(status, LogStatus) or not status.holds:
        return
    lowest = min(status.holds, key=lambda hold: hold.lsn)
    found.requested_lsn = status.requested_truncation_lsn
    found.hold_name, found.hold_lsn, found.hold_owner = lowest.name, lowest.lsn, lowest.owner


def _put_worker(
    host: NodeHost,
    worker: TruncationWorker,
    info: ReplicaInfo,
    found: admin_pb2.TruncationStanding,
) -> None:
    key = (info.shard, info.replica)
    exports, meter = worker.exports, worker.meter
    found.exports = exports.count(*key)
    found.newest_export_index = exports.newest_known_index(*key)
    found.export_bytes = exports.known_bytes(*key)
    found.retained_bytes = meter.bytes_between(*key, Index(info.first_index - 1), info.last_index)
    if info.shard != HAKEEPER_SHARD and not info.witness and not info.halted:
        found.truncatable_bytes = meter.truncatable_bytes(*key, info.truncated_lsn)
    found.visits_stalled = worker.stalled_visits(key)
    decision = worker.decisions.of(key)
    found.freed_bytes = decision.freed_bytes
    found.decision, found.export_decision = decision.install, decision.export
    found.error = decision.error
    if decision.install or decision.export:
        found.decided_ms_ago = int(1000 * max(0.0, host.clock.monotonic() - decision.at_s))
