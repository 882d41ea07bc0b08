"""What attacks a store's memory budget, and what looks at it meanwhile.

Theory of operation. `Gauges` asks the admin port of one store for the parts of its budget, again
and again from a thread, and keeps the most and the least of each part. That no sample is above a
limit is what is asserted while an attack runs. That each part was at nothing once, after `forget`,
shows that nothing leaked: a heartbeat may be in one sample, a leak is in all of them.

`Pump` appends records that it can recognise, to many logs and over all stores at once, and does not
slow down when it is refused. It keeps what was acked, by log and LSN, and counts the typed errors.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import itertools
import socket
import threading
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import grpc
import grpc.aio
from logservice_client.failure import error_of
from logservice_wire.block import Block, encode_block
from logservice_wire.v1 import log_pb2, log_pb2_grpc

from tests.hostile import http2

MIB = 1 << 20
OPTIONS = [("grpc.max_receive_message_length", 64 * MIB), ("grpc.max_send_message_length", -1)]
READ, FOLLOW = "/logservice.v1.Log/Read", "/logservice.v1.Log/Follow"
ID_BYTES = 16
_METRIC = "logservice_memory_part_"
_KINDS = {"bytes": "used", "limit_bytes": "limit", "refused_total": "refused"}


def parts_of(page: str) -> dict[str, dict[str, int]]:
    """``used``, ``limit`` and ``refused`` of each part, from the text of ``/metrics``."""
    found: dict[str, dict[str, int]] = {kind: {} for kind in _KINDS.values()}
    for line in page.splitlines():
        if line.startswith(_METRIC):
            name, _, rest = line.removeprefix(_METRIC).partition("{")
            part, _, value = rest.partition("} ")
            found[_KINDS[name]][part.removeprefix('part="').removesuffix('"')] = int(float(value))
    return found


class Gauges:
    """The parts of one store while the block runs; a store that does not answer is not seen."""

    def __init__(self, address: str, interval_s: float = 0.1) -> None:
        """`address`: of the admin port."""
        self.samples = 0
        self.limit: dict[str, int] = {}
        self.most: Counter[str] = Counter()
        self.least: dict[str, int] = {}
        self.refused: Counter[str] = Counter()
        self._address = address
        self._interval_s = interval_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Gauges:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def forget(self) -> None:
        """The least of each part is what is seen from now on."""
        self.least = {}

    def _watch(self) -> None:
        while not self._ended.wait(self._interval_s):
            with contextlib.suppress(OSError, http.client.HTTPException):
                self._look()

    def _look(self) -> None:
        least = self.least
        connection = http.client.HTTPConnection(self._address, timeout=5)
        try:
            connection.request("GET", "/metrics")
            found = parts_of(connection.getresponse().read().decode())
        finally:
            connection.close()
        self.samples += 1
        self.limit = found["limit"]
        for part, size in found["used"].items():
            self.most[part] = max(self.most[part], size)
            least[part] = min(least.get(part, size), size)
        for part, count in found["refused"].items():
            self.refused[part] = max(self.refused[part], count)


class Pump:
    """Appends without end to several logs, `at_a_time` to each; see the module's text."""

    def __init__(
        self, addresses: Sequence[str], shards: Sequence[int], at_a_time: int, record_bytes: int
    ) -> None:
        self.acked: dict[tuple[int, int], bytes] = {}
        self.errors: Counter[str] = Counter()
        self._channels = [grpc.aio.insecure_channel(one, options=OPTIONS) for one in addresses]
        self._stubs: list[Any] = [log_pb2_grpc.LogStub(one) for one in self._channels]
        self._shards = shards
        self._at_a_time = at_a_time
        self._filling = bytes(record_bytes - ID_BYTES)
        self._numbers = itertools.count(1)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Pump:
        for shard in self._shards:
            for worker in range(self._at_a_time):
                self._tasks.append(asyncio.create_task(self._work(shard, worker)))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        """Go away in the middle of everything, as a client that is killed does."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for channel in self._channels:
            await channel.close()

    async def _work(self, shard: int, worker: int) -> None:
        for stub in itertools.islice(itertools.cycle(self._stubs), worker, None):
            number = next(self._numbers).to_bytes(ID_BYTES, "big")
            block = encode_block([number + self._filling], 1)
            request = log_pb2.AppendRequest(shard_id=shard, block=block)
            try:
                answer = await stub.Append(request, timeout=8)
            except grpc.aio.AioRpcError as failure:
                error = error_of(failure, mutating=True)
                self.errors[type(error).__name__] += 1
                await asyncio.sleep(0.02)
            else:
                self.acked[shard, answer.lsn] = number


async def record_ids(address: str, shard: int, last: int) -> dict[tuple[int, int], bytes]:
    """The ids of the pump's records of one log up to an LSN, by log and LSN."""
    found: dict[tuple[int, int], bytes] = {}
    lsn = 1
    async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
        stub: Any = log_pb2_grpc.LogStub(channel)
        while lsn <= last:
            request = log_pb2.ReadRequest(shard_id=shard, lsn=lsn, max_bytes=4 * MIB)
            try:
                answer = await stub.Read(request, timeout=10)
            except grpc.aio.AioRpcError as failure:
                if not error_of(failure, mutating=False).retryable:
                    raise
                await asyncio.sleep(0.1)
                continue
            for one in answer.blocks:
                if one.block:
                    found[shard, one.first_lsn] = Block.parse(one.block).record(0)[:ID_BYTES]
            lsn = answer.next_lsn
    return found


async def catch_up(address: str, shards: Sequence[int], errors: Counter[str]) -> None:
    """Read logs from their beginning in the largest answers, without end."""
    async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
        stub: Any = log_pb2_grpc.LogStub(channel)
        for shard in itertools.cycle(shards):
            request = log_pb2.ReadRequest(shard_id=shard, lsn=1, max_bytes=16 * MIB, stale=True)
            try:
                await stub.Read(request, timeout=8)
            except grpc.aio.AioRpcError as failure:
                errors[type(error_of(failure, mutating=False)).__name__] += 1
                await asyncio.sleep(0.05)


async def deaf_stream(address: str, shard: int) -> None:
    """Append on a stream whose acks nobody reads, until it is cancelled or ends."""
    async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
        stub: Any = log_pb2_grpc.LogStub(channel)
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            opened = await stub.OpenSession(log_pb2.OpenSessionRequest(shard_id=shard), timeout=8)
            stream = stub.AppendStream()
            opening = log_pb2.AppendStreamRequest.Open(
                shard_id=shard, session_id=opened.session_id, session_nonce=opened.nonce
            )
            await stream.write(log_pb2.AppendStreamRequest(open=opening))
            block = encode_block([bytes(MIB // 4)], 1)
            for sequence in itertools.count(1):
                one = log_pb2.AppendStreamRequest.Block(sequence=sequence, block=block)
                await stream.write(log_pb2.AppendStreamRequest(blocks=[one]))
                await asyncio.sleep(0.05)


def greedy(address: str, shard: int, path: str, calls: int) -> socket.socket:
    """A connection with `calls` calls whose answers nobody takes, because its window stays shut."""
    made = http2.connect(address, None)
    made.settimeout(10)
    made.sendall(http2.PREFACE + http2.settings(0) + http2.frame(http2.SETTINGS, http2.ACK, 0))
    kind = log_pb2.ReadRequest if path == READ else log_pb2.FollowRequest
    request = kind(shard_id=shard, lsn=1, max_bytes=16 * MIB).SerializeToString()
    for number in range(calls):
        stream = 2 * number + 1
        made.sendall(
            http2.headers(stream, http2.request_fields(path)) + http2.message(stream, request)
        )
    return made
