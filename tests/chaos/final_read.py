"""The final read: every replica is read on its own, from its first LSN to its last."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

import grpc
import grpc.aio
from logservice_client.read_result import Gap, result_of
from logservice_client.tls import Tls
from logservice_wire.v1 import hakeeper_pb2, hakeeper_pb2_grpc, log_pb2, log_pb2_grpc

from logservice.sim.history import Read, Run
from tests.chaos.records import runs_of

_READ_BYTES = 4 * 1024 * 1024
_OPTIONS = [("grpc.max_receive_message_length", 64 * 1024 * 1024)]


class NotConverged(Exception):
    """Replicas did not come to the same state in time."""


def channel_to(address: str, tls: Tls | None) -> grpc.aio.Channel:
    """A channel to one store, with room for whatever it holds at once."""
    if tls is None:
        return grpc.aio.insecure_channel(address, options=_OPTIONS)
    return grpc.aio.secure_channel(address, tls.credentials(), options=_OPTIONS)


async def status(
    address: str, shard: int, *, stale: bool, tls: Tls | None = None
) -> log_pb2.GetShardStatusResponse | None:
    """A store's view of the shard; None when it cannot tell."""
    async with channel_to(address, tls) as channel:
        request = log_pb2.GetShardStatusRequest(shard_id=shard, stale=stale)
        try:
            stub = log_pb2_grpc.LogStub(channel)
            answer: log_pb2.GetShardStatusResponse = await stub.GetShardStatus(request, timeout=3.0)
        except grpc.aio.AioRpcError:
            return None
        return answer


async def cluster_state(addresses: Iterable[str]) -> hakeeper_pb2.ClusterState | None:
    """HAKeeper's view through the first store that answers; None when none does."""
    for address in addresses:
        async with grpc.aio.insecure_channel(address) as channel:
            stub = hakeeper_pb2_grpc.HAKeeperStub(channel)
            request = hakeeper_pb2.GetClusterStateRequest()
            try:
                state: hakeeper_pb2.ClusterState = await stub.GetClusterState(request, timeout=3.0)
            except grpc.aio.AioRpcError:
                continue
            return state
    return None


async def incarnations(addresses: Iterable[str], store: str) -> set[int]:
    """The incarnations of the store's data directory that HAKeeper knows from its replicas."""
    state = await cluster_state(addresses)
    if state is None:
        return set()
    replicas = [one for view in state.shards for one in view.replicas]
    return {one.incarnation for one in replicas if one.store_id == store}


async def unrepaired(addresses: dict[str, str], shards: list[int], lost: set[int]) -> str:
    """Which shard is not yet whole without the lost incarnations, in HAKeeper's view, and why.

    Empty when all are whole.
    """
    state = await cluster_state(addresses.values())
    if state is None:
        return "no store answers"
    views = {view.shard_id: view for view in state.shards}
    for shard in (0, *shards):
        view = views.get(shard)
        if view is None:
            return f"shard {shard} is unknown"
        if any(one.incarnation in lost for one in view.replicas):
            return f"shard {shard} still has a lost replica"
        voters = {one.store_id for one in view.replicas if one.role == "voter" and one.reported}
        if view.joint or not voters <= addresses.keys() or len(voters) < min(3, len(addresses)):
            return f"shard {shard} has reported voters on {sorted(voters)}"
    return ""


async def converged(
    addresses: dict[str, str],
    shard: int,
    wanted: int,
    timeout_s: float,
    tls: Tls | None = None,
) -> list[str]:
    """Wait until at least `wanted` stores hold the same applied state; return their names.

    Nobody may append meanwhile. Raises NotConverged with what each store says.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        answers = await asyncio.gather(
            *(status(address, shard, stale=True, tls=tls) for address in addresses.values())
        )
        told = dict(zip(addresses, answers, strict=True))
        strong = await asyncio.gather(
            *(status(address, shard, stale=False, tls=tls) for address in addresses.values())
        )
        known = [answer.applied_index for answer in strong if answer is not None]
        holders = [name for name, answer in told.items() if answer is not None]
        indexes = {answer.applied_index for answer in answers if answer is not None}
        if len(holders) >= wanted and known and len(indexes) == 1 and max(known) in indexes:
            return holders
        if time.monotonic() > deadline:
            views = {
                name: answer and (answer.term, answer.applied_index, answer.committed_index)
                for name, answer in told.items()
            }
            raise NotConverged(
                f"shard {shard} after {timeout_s:g} s, (term, applied, committed) by store: "
                f"{views}; linearizable applied: {known}"
            )
        await asyncio.sleep(0.1)


async def read_all(store: str, address: str, shard: int, tls: Tls | None = None) -> Read:
    """Everything one replica holds. Raises grpc's error when it cannot be read."""
    invoked = time.monotonic()
    runs: list[Run] = []
    async with channel_to(address, tls) as channel:
        stub = log_pb2_grpc.LogStub(channel)
        about = await stub.GetShardStatus(
            log_pb2.GetShardStatusRequest(shard_id=shard, stale=True), timeout=30.0
        )
        first, applied = about.position.first_lsn, about.position.applied_lsn
        lsn = first
        while lsn <= applied:
            request = log_pb2.ReadRequest(
                shard_id=shard, lsn=lsn, max_bytes=_READ_BYTES, stale=True
            )
            response = await stub.Read(request, timeout=30.0)
            for item in result_of(response, lsn).items:
                if isinstance(item, Gap):
                    runs.append(Run(item.first_lsn, item.record_count, gap=item.reason.name))
                else:
                    runs += runs_of(item.first_lsn, item.records())
            if response.next_lsn <= lsn:
                break
            lsn = response.next_lsn
    return Read(
        "final",
        store,
        invoked,
        time.monotonic(),
        first,
        tuple(runs),
        lsn,
        first,
        applied,
        False,
        True,
    )
