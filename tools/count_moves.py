"""How far a request walks: files and moves of one Append, one Read and one Truncate.

The product's own builder makes one store with one replica. Its disk and peers are in memory and its
executors run at once, so everything happens in this thread and in a fixed order. The methods of the
Log service are called as gRPC calls them, and `sys.setprofile` counts from the handler's first line
until its answer is there. Each kind of call is made several times, and the shortest way counts:
work that is needed only once (a first election, a cold cache) and a tick that comes in between do
not count.

A *file* is one of `logservice/` or `client/logservice_wire/` of which a function ran. A *move* is a
call of a function in one such file by a function in another; what lies between the two on the stack
and is not ours (functools, a generated `__init__`) is looked through. A coroutine that goes on
behind an `await` was called once and counts once. What the event loop calls has no caller.

    python -m tools.count_moves              # the table
    python -m tools.count_moves --calls      # and every move, how often, in order of appearance
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import logservice_wire
from logservice_wire.block import encode_block
from logservice_wire.v1 import log_pb2

import logservice
from logservice.clock import SystemClock
from logservice.config import LimitsSection
from logservice.ids import ClusterId, ReplicaId, ShardId, StoreId
from logservice.logdb.io.memory_kv import MemoryKvEngine
from logservice.logdb.io.memory_vfs import MemoryVfs
from logservice.logdb.options import LogDbOptions
from logservice.membership import Member, Membership
from logservice.nodehost.agent.hakeeper_ticks import FirstConfiguration
from logservice.nodehost.assembly.store_directory import DiskSeams
from logservice.nodehost.assembly.store_parts import StoreParts, StoreSeams, StoreSettings
from logservice.nodehost.disks.executor import InlineExecutor
from logservice.nodehost.options import NodeHostOptions
from logservice.nodehost.transport.memory import MemoryNetwork, MemoryTransport
from logservice.owner import ANONYMOUS
from logservice.server.services.context import StoreContext
from logservice.server.services.log_service import LogService

_SHARD: Final = ShardId(1)
_REPLICA: Final = ReplicaId(1)
_REPEATS: Final = 12
_OURS: Final = {
    f"{Path(module.__file__ or '').parent}/": f"{module.__name__}/"
    for module in (logservice, logservice_wire)
}


def _own_file(code: CodeType) -> str:
    """The file of a function as the product names it; empty when it is not the product's."""
    for prefix, name in _OURS.items():
        if code.co_filename.startswith(prefix):
            return name + code.co_filename.removeprefix(prefix)
    return ""


@dataclass(slots=True)
class Way:
    """What ran, in order of appearance."""

    files: dict[str, None] = field(default_factory=dict)
    moves: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By caller and called function, as `file:name`."""

    def look(self, frame: FrameType, event: str, _argument: object) -> None:
        """The callback of `sys.setprofile`."""
        if event != "call":
            return
        file = _own_file(frame.f_code)
        if not file or frame.f_code.co_code[frame.f_lasti + 1]:
            return  # not ours, or it goes on: only the RESUME at a start has argument 0
        self.files[file] = None
        caller = frame.f_back
        while caller is not None and not _own_file(caller.f_code):
            caller = caller.f_back
        if caller is not None and _own_file(caller.f_code) != file:
            called_by = f"{_own_file(caller.f_code)}:{caller.f_code.co_qualname}"
            self.moves[called_by, f"{file}:{frame.f_code.co_qualname}"] += 1


class _Call:
    """A gRPC context of a caller who sets no deadline and stays."""

    def time_remaining(self) -> None:
        return None

    def add_done_callback(self, _callback: object) -> None:
        """Never call back: the call is not over before its answer."""


async def walked(call: Callable[[], Awaitable[object]]) -> Way:
    """The shortest of several ways of `call`."""
    ways: list[Way] = []
    for _ in range(_REPEATS):
        way = Way()
        sys.setprofile(way.look)
        try:
            await call()
        finally:
            sys.setprofile(None)
        ways.append(way)
        await asyncio.sleep(0.02)  # work that follows an answer must not count for the next one
    return min(ways, key=lambda way: way.moves.total())


def _store() -> StoreParts:
    chance = random.Random(1)

    def disk(_path: str) -> DiskSeams:
        return DiskSeams(MemoryVfs(), MemoryKvEngine(), *(InlineExecutor() for _ in range(4)))

    def fatal(error: BaseException) -> None:
        raise error

    cluster = ClusterId("moves")
    return StoreParts(
        StoreSettings(
            cluster,
            StoreId("s1"),
            ["/data"],
            (),
            FirstConfiguration(cluster, 1, 1, 10.0),
            options=NodeHostOptions(tick_ms=20, election_ticks=10),
            logdb=LogDbOptions(segment_bytes=1 << 20, ballast_bytes=0),
        ),
        StoreSeams(
            disk=disk,
            clock=SystemClock(),
            make_transport=lambda identity: MemoryTransport(identity, MemoryNetwork()),
            draw_id=lambda: chance.getrandbits(63),
            rng=chance,
            on_fatal=fatal,
        ),
    )


async def count() -> dict[str, Way]:
    """The ways by kind of request."""
    parts = _store()
    host = parts.host
    await parts.start()
    try:
        member = Member(_REPLICA, host.identity.store_id, host.identity.incarnations[0])
        membership = Membership(voters=(_REPLICA,), members=(member,))
        await host.replicas.start(_SHARD, _REPLICA, membership, join=False)
        await host.read_index(_SHARD, 10.0)
        context: Any = _Call()
        log = LogService(StoreContext(host, LimitsSection(), lambda _: "", lambda: ANONYMOUS))
        session = await log.OpenSession(log_pb2.OpenSessionRequest(shard_id=_SHARD), context)
        sequence = 0

        async def append() -> None:
            nonlocal sequence
            sequence += 1
            request = log_pb2.AppendRequest(
                shard_id=_SHARD,
                session_id=session.session_id,
                session_nonce=session.nonce,
                sequence=sequence,
                block=encode_block((b"record",), timestamp_us=1),
            )
            await log.Append(request, context)

        async def read() -> None:
            await log.Read(log_pb2.ReadRequest(shard_id=_SHARD, lsn=_REPEATS), context)

        async def truncate() -> None:
            nonlocal sequence
            sequence += 1
            request = log_pb2.TruncateRequest(shard_id=_SHARD, lsn=sequence - _REPEATS)
            await log.Truncate(request, context)

        return {
            "Append": await walked(append),
            "Read": await walked(read),
            "Truncate": await walked(truncate),
        }
    finally:
        await parts.stop()
        parts.close()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--calls", action="store_true", help="print every move")
    arguments = parser.parse_args()
    assert threading.active_count() == 1
    for name, way in asyncio.run(count()).items():
        print(f"{name:9} {len(way.files):4} files {way.moves.total():5} moves")
        if arguments.calls:
            for (caller, called), times in way.moves.items():
                print(f"    {times:3} {caller} -> {called}")


if __name__ == "__main__":
    main()
