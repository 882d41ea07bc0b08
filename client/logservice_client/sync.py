"""SyncLogClient: the client for programs without an event loop, callable from any thread.

A thread, kept for the next client behind it, runs an event loop with a `LogClient` in it. Every
call here hands a coroutine over and waits, so many threads that append at once share blocks exactly
as tasks do. The methods are those of `Shard` and `HakeeperClient` (`_waiting`): what a call takes,
does, returns and raises is said there. A client does not survive a fork: in a child every call
raises ClientClosed.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import (
    AsyncGenerator,
    Callable,
    Coroutine,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from logservice_wire.errors import ClientClosed, LogServiceError
from logservice_wire.v1 import hakeeper_pb2

from logservice_client.arguments import seconds
from logservice_client.background import begin_task
from logservice_client.bounds import HOLD_TTL_S, TIMEOUT_DEFAULT_S
from logservice_client.caller import Traceparent
from logservice_client.client import LogClient
from logservice_client.environment import from_environment
from logservice_client.follow import FollowPosition
from logservice_client.following import Answer
from logservice_client.hakeeper import HakeeperClient
from logservice_client.held_log import HeldLog
from logservice_client.lag import Standing
from logservice_client.lineage import Lineage
from logservice_client.loop_thread import LoopThread
from logservice_client.meter import Meter
from logservice_client.named_session import NamedSession
from logservice_client.pipeline import Pipeline
from logservice_client.read_result import Gap, Records
from logservice_client.records import Record, checked_records, expected
from logservice_client.redundancy import Redundancy
from logservice_client.service import Service
from logservice_client.shard import Shard
from logservice_client.tls import Tls, TlsFiles
from logservice_client.tn_shards import Serve, TnShard

AsyncT = TypeVar("AsyncT")
ParametersT = ParamSpec("ParametersT")
ValueT = TypeVar("ValueT")


class _Face(Generic[AsyncT]):
    """An object of the client's loop, for callers on any thread."""

    def __init__(self, client: SyncLogClient, face_of: AsyncT) -> None:
        self._wait = client._loop.wait
        self._async = face_of

    def _each(self, items: AsyncGenerator[ValueT]) -> Generator[ValueT]:
        """The items, one call to the loop for each."""

        async def next_item() -> ValueT | None:
            return await anext(items, None)

        async def close() -> None:
            await items.aclose()

        try:
            while (item := self._wait(next_item())) is not None:
                yield item
        finally:
            with contextlib.suppress(ClientClosed):
                self._wait(close())

    def __repr__(self) -> str:
        return f"<Sync {self._async!r}>"


def _waiting(
    method: Callable[Concatenate[AsyncT, ParametersT], Coroutine[Any, Any, ValueT]],
) -> Callable[Concatenate[_Face[AsyncT], ParametersT], ValueT]:
    """`method` as a blocking call: it returns when the work is done."""

    @functools.wraps(method)
    def wait(
        face: _Face[AsyncT], /, *args: ParametersT.args, **kwargs: ParametersT.kwargs
    ) -> ValueT:
        return face._wait(method(face._async, *args, **kwargs))

    wait.__qualname__ = f"Sync{method.__qualname__}"
    return wait


class SyncLogClient:
    """See `LogClient`.

    ```python
    with SyncLogClient("127.0.0.1:7401") as client:
        lsn = client.shard(1).append(b"record")
    ```
    """

    def __init__(
        self,
        endpoints: str | Sequence[str],
        *,
        tls: Tls | TlsFiles | None = None,
        traceparent: Traceparent | None = None,
        zone: str = "",
        meter: Meter | None = None,
    ) -> None:
        """Start the thread; no connection is made yet. `traceparent` is called on that thread, in
        the context of the one that calls; `meter` on that thread, too.
        """
        self._loop = LoopThread()
        try:
            self._client = self._loop.wait(self._make(endpoints, tls, traceparent, zone, meter))
        except BaseException:
            self._loop.close(_nothing)
            raise
        self._pipelines: dict[int, Pipeline] = {}
        self.hakeeper = SyncHakeeperClient(self, self._client.hakeeper)

    @classmethod
    def from_env(
        cls,
        *,
        traceparent: Traceparent | None = None,
        zone: str = "",
        meter: Meter | None = None,
    ) -> Self:
        """See `LogClient.from_env`."""
        endpoints, tls = from_environment()
        return cls(endpoints, tls=tls, traceparent=traceparent, zone=zone, meter=meter)

    def shard(self, shard_id: int) -> SyncShard:
        """The handle of a log."""

        async def make() -> Shard:
            return self._client.shard(shard_id)

        return SyncShard(self, self._loop.wait(make()))

    def log(self, name: str, *, timeout: float | None = None) -> SyncShard:
        """See `LogClient.log`."""
        return SyncShard(self, self._loop.wait(self._client.log(name, timeout=timeout)))

    def replica_addresses(self, shard_id: int) -> tuple[str, ...]:
        """See `LogClient.replica_addresses`."""
        return self._client.replica_addresses(shard_id)

    def near_addresses(self, shard_id: int) -> tuple[str, ...]:
        """See `LogClient.near_addresses`."""
        return self._client.near_addresses(shard_id)

    def close(self) -> None:
        """Close connections and end the thread. Whatever is under way, on other threads and as
        futures, ends with ClientClosed. Calling it again does nothing, and so does a forked child.
        """
        if not self._loop.life.closed:
            with contextlib.suppress(ClientClosed):
                self.hakeeper.close()
        self._loop.close(self._client.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @staticmethod
    async def _make(
        endpoints: str | Sequence[str],
        tls: Tls | TlsFiles | None,
        traceparent: Traceparent | None,
        zone: str,
        meter: Meter | None,
    ) -> LogClient:
        return LogClient(endpoints, tls=tls, traceparent=traceparent, zone=zone, meter=meter)

    def _pipeline(self, shard: Shard) -> Pipeline:
        """That of a log: all its handles share one, so that there is one order."""
        found = self._pipelines.get(shard.shard_id)
        if found is None:
            made = Pipeline(self._loop, shard.hand_over)
            found = self._pipelines.setdefault(shard.shard_id, made)
        return found

    def __repr__(self) -> str:
        return f"<Sync {self._client!r}>"


async def _nothing() -> None:
    pass


class SyncShard(_Face[Shard]):
    """See `Shard`. Get it from `SyncLogClient.shard`."""

    def __init__(self, client: SyncLogClient, face_of: Shard) -> None:
        """See `SyncLogClient.shard`."""
        super().__init__(client, face_of)
        self._client = client
        self._pipeline = client._pipeline(face_of)

    @property
    def shard_id(self) -> int:
        """See `LogClient.shard`."""
        return self._async.shard_id

    @property
    def writer_epoch(self) -> int:
        """The epoch that appends carry; 0: none."""
        return self._async.writer_epoch

    @property
    def redundancy(self) -> Redundancy:
        """See `Shard.redundancy`."""
        return self._async.redundancy

    @property
    def lineage(self) -> Lineage | None:
        """See `Shard.lineage`."""
        return self._async.lineage

    def accept_lineage(self) -> Lineage | None:
        """See `Shard.accept_lineage`."""

        async def accept() -> Lineage | None:
            return self._async.accept_lineage()

        return self._wait(accept())

    @property
    def append_time_us(self) -> int:
        """See `Shard.append_time_us`."""
        return self._async.append_time_us

    append = _waiting(Shard.append)
    append_block = _waiting(Shard.append_block)
    append_columns = _waiting(Shard.append_columns)
    append_arrow = _waiting(Shard.append_arrow)
    read = _waiting(Shard.read)
    lsn_at_time = _waiting(Shard.lsn_at_time)
    digest = _waiting(Shard.digest)
    connect = _waiting(Shard.connect)
    truncate = _waiting(Shard.truncate)
    status = _waiting(Shard.status)
    acquire_writer = _waiting(Shard.acquire_writer)
    release_writer = _waiting(Shard.release_writer)
    set_hold = _waiting(Shard.set_hold)
    renew_hold = _waiting(Shard.renew_hold)
    release_hold = _waiting(Shard.release_hold)
    named_sessions = _waiting(Shard.named_sessions)
    forget_session = _waiting(Shard.forget_session)
    allocate_timestamps = _waiting(Shard.allocate_timestamps)
    close_log = _waiting(Shard.close_log)

    def hold(self, name: str, lsn: int, *, ttl: int = HOLD_TTL_S) -> SyncHeldLog:
        """See `Shard.hold`: ``with log.hold("nightly-backup", lsn) as held: ...``"""
        return SyncHeldLog(self._client, self._async.hold(name, lsn, ttl=ttl))

    def named_session(
        self,
        name: str,
        *,
        epoch: int,
        content: bytes,
        stamp_us: int,
        ttl_s: int = 0,
        timeout: float | None = None,
    ) -> SyncNamedSession:
        """See `Shard.named_session`."""
        opening = self._async.named_session(
            name, epoch=epoch, content=content, stamp_us=stamp_us, ttl_s=ttl_s, timeout=timeout
        )
        return SyncNamedSession(self._client, self._wait(opening))

    def append_async(
        self,
        record: Record | Sequence[Record],
        *,
        expected_lsn: int | None = None,
        timeout: float | None = None,
    ) -> Future[int]:
        """`append` without the wait: returns at once, and the future gets the (first) LSN or the
        error. Appends of all threads get LSNs in the order of these calls.

        Arguments are judged here, and ClientClosed is raised here when the client is closed. At
        most PIPELINED_RECORDS_MAX records or PIPELINED_BYTES_MAX bytes of a log are without a
        result; the call waits for room, and raises Busy (not applied) when there is none within
        `timeout`, which counts for the append, too. The future cannot be cancelled.

        A failure is that of one append. Those behind it go on, and may succeed: so a program whose
        records build on each other stops at the first failure, or says `expected_lsn`
        (docs/client.md). Callbacks of the future run on the client's own thread: they return soon,
        and make no call that waits.
        """
        self._client._loop.life.check()
        records, size = checked_records(record)
        return self._pipeline.append(
            records,
            size,
            epoch=self._async.writer_epoch,
            timeout_s=seconds(timeout),
            expected_lsn=expected(expected_lsn),
            traceparent=self._async.traceparent(),
        )

    def follow(
        self,
        lsn: int,
        *,
        until_lsn: int | None = None,
        until_tail: bool = False,
        from_timestamp_us: int = 0,
        until_timestamp_us: int = 0,
        from_append_time_us: int = 0,
        until_append_time_us: int = 0,
        on_tail: Callable[[int], None] | None = None,
        patience: float = TIMEOUT_DEFAULT_S,
    ) -> SyncFollow:
        """See `Shard.follow`. `on_tail` is called on the thread that iterates."""
        answers = self._async.follow_answers(
            lsn,
            until_lsn=until_lsn,
            until_tail=until_tail,
            from_timestamp_us=from_timestamp_us,
            until_timestamp_us=until_timestamp_us,
            from_append_time_us=from_append_time_us,
            until_append_time_us=until_append_time_us,
            tell_tail=on_tail is not None,
            patience=patience,
        )
        standing = Standing(lsn)
        # One hand-over between the threads brings a whole answer.
        return SyncFollow(standing, _items_of(self._each(answers), standing, on_tail))

    def records(
        self,
        from_lsn: int,
        *,
        until_lsn: int | None = None,
        until_tail: bool = False,
        on_tail: Callable[[int], None] | None = None,
        patience: float = TIMEOUT_DEFAULT_S,
    ) -> Iterator[tuple[int, bytes]]:
        """See `Shard.records`: ``for lsn, record in log.records(1, until_tail=True): ...``"""
        items = self.follow(
            from_lsn,
            until_lsn=until_lsn,
            until_tail=until_tail,
            on_tail=on_tail,
            patience=patience,
        )
        for item in items:
            if isinstance(item, Records):
                yield from enumerate(item.records(), item.first_lsn)


class SyncFollow(FollowPosition):
    """See `Follow`. Get it from `SyncShard.follow`; iterate over it once, on one thread. Whoever
    leaves before the end may close it: ``with closing(log.follow(1)) as items: ...``
    """

    def __init__(self, standing: Standing, items: Generator[Records | Gap]) -> None:
        """`items` moves `standing` on."""
        super().__init__(standing)
        self._items = items

    def __iter__(self) -> Iterator[Records | Gap]:
        return self._items  # without this object on the way of each item

    def __next__(self) -> Records | Gap:
        return next(self._items)

    def close(self) -> None:
        """End it."""
        self._items.close()


def _items_of(
    answers: Generator[Answer], standing: Standing, on_tail: Callable[[int], None] | None
) -> Generator[Records | Gap]:
    with contextlib.closing(answers):
        for answer in answers:
            standing.heard(answer.tail_lsn)
            for item in answer.items:
                standing.took(item.next_lsn, item.append_time_us)
                yield item
            standing.took(answer.next_lsn, 0)
            if answer.at_tail and on_tail is not None:
                on_tail(answer.next_lsn)


class SyncHeldLog(_Face[HeldLog]):
    """See `HeldLog`. Get it from `SyncShard.hold`."""

    move = _waiting(HeldLog.move)
    leave = _waiting(HeldLog.leave)

    @property
    def lsn(self) -> int:
        """See `HeldLog.lsn`."""
        return self._async.lsn

    @property
    def sure(self) -> bool:
        """See `HeldLog.sure`."""
        return self._async.sure

    def check(self) -> None:
        """See `HeldLog.check`."""
        self._async.check()

    def __enter__(self) -> Self:
        self._wait(self._async.set())
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._wait(self._async.__aexit__(error_type, error, traceback))


class SyncHakeeperClient(_Face[HakeeperClient]):
    """See `HakeeperClient`. Get it from `SyncLogClient.hakeeper`."""

    cluster_state = _waiting(HakeeperClient.cluster_state)
    shard_info = _waiting(HakeeperClient.shard_info)
    create_shard = _waiting(HakeeperClient.create_shard)
    change_shard = _waiting(HakeeperClient.change_shard)
    delete_shard = _waiting(HakeeperClient.delete_shard)
    wait_deleted = _waiting(HakeeperClient.wait_deleted)
    list_shards = _waiting(HakeeperClient.list_shards)
    resolve_shard = _waiting(HakeeperClient.resolve_shard)
    admit_store = _waiting(HakeeperClient.admit_store)
    send_service_command = _waiting(HakeeperClient.send_service_command)
    set_service_state = _waiting(HakeeperClient.set_service_state)
    set_joining = _waiting(HakeeperClient.set_joining)
    set_store_mode = _waiting(HakeeperClient.set_store_mode)
    drain_directory = _waiting(HakeeperClient.drain_directory)
    set_repair = _waiting(HakeeperClient.set_repair)
    forget_store = _waiting(HakeeperClient.forget_store)
    adopt_shard = _waiting(HakeeperClient.adopt_shard)
    move_replica = _waiting(HakeeperClient.move_replica)
    cancel_wish = _waiting(HakeeperClient.cancel_wish)
    cancel_operator = _waiting(HakeeperClient.cancel_operator)
    set_leader = _waiting(HakeeperClient.set_leader)
    check_impact = _waiting(HakeeperClient.check_impact)
    change_settings = _waiting(HakeeperClient.change_settings)
    rebalance = _waiting(HakeeperClient.rebalance)
    create_tn_shard = _waiting(HakeeperClient.create_tn_shard)
    delete_tn_shard = _waiting(HakeeperClient.delete_tn_shard)
    balance_plan = _waiting(HakeeperClient.balance_plan)
    set_phase = _waiting(HakeeperClient.set_phase)
    raise_cluster_version = _waiting(HakeeperClient.raise_cluster_version)
    allocate_ids = _waiting(HakeeperClient.allocate_ids)

    def __init__(self, client: SyncLogClient, face_of: HakeeperClient) -> None:
        """No service runs yet."""
        super().__init__(client, face_of)
        self._client = client
        self._services: list[SyncService] = []

    def service(
        self,
        service_id: str,
        kind: str,
        handler: Callable[[hakeeper_pb2.ServiceCommand], None],
        *,
        address: str = "",
        labels: Mapping[str, str] | None = None,
        serve: Callable[[TnShard, threading.Event], None] | None = None,
    ) -> SyncService:
        """See `HakeeperClient.service`. It runs from now on, until it or the client is closed.
        `handler` is called on threads of its own, one call at a time. `serve` has a thread for each
        TN shard, and returns soon after the event was set.
        """

        async def handle(command: hakeeper_pb2.ServiceCommand) -> None:
            await asyncio.to_thread(handler, command)

        made = self._async.service(
            service_id,
            kind,
            handle,
            address=address,
            labels=labels,
            serve=_on_a_thread(serve) if serve is not None else None,
        )
        service = SyncService(self._client, made)
        self._services.append(service)
        return service

    def close(self) -> None:
        """End the services that still run; what one of them ended with is no concern here."""
        for service in self._services:
            with contextlib.suppress(LogServiceError):
                service.close()

    def watch_events(
        self,
        after: int | None = None,
        *,
        kinds: Sequence[str] = (),
        shard_id: int | None = None,
        patience: float = TIMEOUT_DEFAULT_S,
    ) -> Iterator[hakeeper_pb2.ClusterEvent]:
        """See `HakeeperClient.watch_events`."""
        watched = self._async.watch_events(after, kinds=kinds, shard_id=shard_id, patience=patience)
        return self._each(watched)


def _on_a_thread(serve: Callable[[TnShard, threading.Event], None]) -> Serve:
    async def run(shard: TnShard) -> None:
        ended = threading.Event()
        done = begin_task(asyncio.to_thread(serve, shard, ended))
        try:
            await asyncio.shield(done)
        except asyncio.CancelledError:
            ended.set()
            with contextlib.suppress(Exception):  # nobody asks any more what came of it
                await done
            raise

    return run


class SyncNamedSession(_Face[NamedSession]):
    """See `NamedSession`. Get it from `SyncShard.named_session`."""

    open = _waiting(NamedSession.open)
    append = _waiting(NamedSession.append)

    @property
    def appended(self) -> int:
        """See `NamedSession.appended`."""
        return self._async.appended

    @property
    def stamp_us(self) -> int:
        """See `NamedSession.stamp_us`."""
        return self._async.stamp_us


class SyncService(_Face[Service]):
    """See `Service`. Get it from `SyncHakeeperClient.service`; it runs until `close`."""

    held = _waiting(Service.held)

    def __init__(self, client: SyncLogClient, face_of: Service) -> None:
        """It sends heartbeats from here on."""
        super().__init__(client, face_of)

        async def begin() -> asyncio.Task[None]:
            return begin_task(face_of.run())

        self._running = self._wait(begin())

    @property
    def silent_s(self) -> float:
        """See `Service.silent_s`."""

        async def ask() -> float:
            return self._async.silent_s

        return self._wait(ask())

    @property
    def holds(self) -> Mapping[int, hakeeper_pb2.ReplayedHold]:
        """See `Service.holds`."""
        return self._async.holds

    def relabel(self, labels: Mapping[str, str]) -> None:
        """See `Service.relabel`."""
        self._do(self._async.relabel, labels)

    def replayed(self, shard_id: int, lsn: int) -> None:
        """See `Service.replayed`."""
        self._do(self._async.replayed, shard_id, lsn)

    def forget(self, shard_id: int) -> None:
        """See `Service.forget`."""
        self._do(self._async.forget, shard_id)

    def close(self) -> None:
        """End the heartbeats. Raises what `Service.run` ended with by itself."""

        async def end() -> None:
            self._running.cancel()
            await asyncio.wait([self._running])

        self._wait(end())
        if not self._running.cancelled():
            self._running.result()

    def _do(self, change: Callable[..., None], *args: object) -> None:
        async def do() -> None:
            change(*args)

        self._wait(do())
