"""SyncLogClient: the client for programs without an event loop, callable from any thread.

One thread of its own runs one event loop with a `LogClient` in it. Every call here hands a
coroutine over and waits, so many threads that append at once share blocks exactly as tasks do. The
methods are those of `Shard` and `HakeeperClient` (`_waiting`): what a call takes, does, returns and
raises is said there. A client does not survive fork: make one per process.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from logservice_client.bounds import TIMEOUT_DEFAULT_S
from logservice_client.caller import Traceparent
from logservice_client.client import LogClient
from logservice_client.hakeeper import HakeeperClient
from logservice_client.read_result import Gap, Records
from logservice_client.shard import Shard
from logservice_client.tls import Tls, TlsFiles

AsyncT = TypeVar("AsyncT")
ParametersT = ParamSpec("ParametersT")
ValueT = TypeVar("ValueT")


class _Face(Generic[AsyncT]):
    """An object of the client's loop, for callers on any thread."""

    def __init__(self, client: SyncLogClient, face_of: AsyncT) -> None:
        self._wait = client._wait
        self._async = face_of


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

    with SyncLogClient("127.0.0.1:9700") as client:
        lsn = client.shard(1).append(b"record")
    """

    def __init__(
        self,
        endpoints: str | Sequence[str],
        *,
        tls: Tls | TlsFiles | None = None,
        traceparent: Traceparent | None = None,
    ) -> None:
        """Start the thread; no connection is made yet. `traceparent` is called on that thread, in
        the context of the one that calls.
        """
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="logservice-client", daemon=True
        )
        self._thread.start()
        try:
            self._client = self._wait(self._make(endpoints, tls, traceparent))
        except BaseException:
            self._stop()
            raise
        self.hakeeper = SyncHakeeperClient(self, self._client.hakeeper)

    def shard(self, shard_id: int) -> SyncShard:
        """The handle of a log."""

        async def make() -> Shard:
            return self._client.shard(shard_id)

        return SyncShard(self, self._wait(make()))

    def replica_addresses(self, shard_id: int) -> tuple[str, ...]:
        """See `LogClient.replica_addresses`."""
        return self._client.replica_addresses(shard_id)

    def close(self) -> None:
        """Close connections and end the thread; calling it again does nothing."""
        if self._thread.is_alive():
            self._wait(self._client.close())
            self._stop()

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
        endpoints: str | Sequence[str], tls: Tls | TlsFiles | None, traceparent: Traceparent | None
    ) -> LogClient:
        return LogClient(endpoints, tls=tls, traceparent=traceparent)

    def _wait(self, work: Coroutine[Any, Any, ValueT]) -> ValueT:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


class SyncShard(_Face[Shard]):
    """See `Shard`. Get it from `SyncLogClient.shard`."""

    @property
    def shard_id(self) -> int:
        """See `LogClient.shard`."""
        return self._async.shard_id

    @property
    def writer_epoch(self) -> int:
        """The epoch that appends carry; 0: none."""
        return self._async.writer_epoch

    append = _waiting(Shard.append)
    append_block = _waiting(Shard.append_block)
    read = _waiting(Shard.read)
    connect = _waiting(Shard.connect)
    truncate = _waiting(Shard.truncate)
    status = _waiting(Shard.status)
    acquire_writer = _waiting(Shard.acquire_writer)
    release_writer = _waiting(Shard.release_writer)
    set_hold = _waiting(Shard.set_hold)
    release_hold = _waiting(Shard.release_hold)
    allocate_timestamps = _waiting(Shard.allocate_timestamps)

    def follow(
        self,
        lsn: int,
        *,
        until_lsn: int | None = None,
        until_tail: bool = False,
        from_timestamp_us: int = 0,
        until_timestamp_us: int = 0,
        patience: float = TIMEOUT_DEFAULT_S,
    ) -> Iterator[Records | Gap]:
        """See `Shard.follow`."""
        items = self._async.follow(
            lsn,
            until_lsn=until_lsn,
            until_tail=until_tail,
            from_timestamp_us=from_timestamp_us,
            until_timestamp_us=until_timestamp_us,
            patience=patience,
        )

        async def next_item() -> Records | Gap | None:
            return await anext(items, None)

        async def close() -> None:
            await items.aclose()

        try:
            while (item := self._wait(next_item())) is not None:
                yield item
        finally:
            self._wait(close())


class SyncHakeeperClient(_Face[HakeeperClient]):
    """See `HakeeperClient`. Get it from `SyncLogClient.hakeeper`."""

    cluster_state = _waiting(HakeeperClient.cluster_state)
    shard_info = _waiting(HakeeperClient.shard_info)
    create_shard = _waiting(HakeeperClient.create_shard)
    admit_store = _waiting(HakeeperClient.admit_store)
    set_joining = _waiting(HakeeperClient.set_joining)
    allocate_ids = _waiting(HakeeperClient.allocate_ids)
