"""SyncLogClient: the client for programs without an event loop, callable from any thread.

One thread of its own runs one event loop with a `LogClient` in it; every call here hands a
coroutine over and waits. So many threads that append at once share blocks exactly as tasks do. What
each call does, returns and raises is said at the method of the same name in `client`, `shard` and
`hakeeper`.
A client does not survive fork: make one per process.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from logservice_wire.v1 import hakeeper_pb2, log_pb2

from logservice_client.bounds import TIMEOUT_DEFAULT_S
from logservice_client.caller import Traceparent
from logservice_client.client import LogClient
from logservice_client.read_result import Gap, ReadResult, Records
from logservice_client.shard import Record, Shard
from logservice_client.tls import Tls, TlsFiles

ValueT = TypeVar("ValueT")


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
        self.hakeeper = SyncHakeeperClient(self)

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


class SyncShard:
    """See `Shard`."""

    def __init__(self, client: SyncLogClient, shard: Shard) -> None:
        """Get it from `SyncLogClient.shard`."""
        self._wait = client._wait
        self._shard = shard
        self.shard_id = shard.shard_id

    @property
    def writer_epoch(self) -> int:
        """The epoch that appends carry; 0: none."""
        return self._shard.writer_epoch

    def append(
        self,
        record: Record | Sequence[Record],
        *,
        expected_lsn: int | None = None,
        timeout: float | None = None,
    ) -> int:
        """See `Shard.append`."""
        return self._wait(self._shard.append(record, expected_lsn=expected_lsn, timeout=timeout))

    def append_block(
        self, block: bytes, *, expected_lsn: int | None = None, timeout: float | None = None
    ) -> int:
        """See `Shard.append_block`."""
        return self._wait(
            self._shard.append_block(block, expected_lsn=expected_lsn, timeout=timeout)
        )

    def read(
        self, lsn: int, *, max_bytes: int = 0, stale: bool = False, timeout: float | None = None
    ) -> ReadResult:
        """See `Shard.read`."""
        return self._wait(self._shard.read(lsn, max_bytes=max_bytes, stale=stale, timeout=timeout))

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
        items = self._shard.follow(
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

    def connect(self, *, timeout: float | None = None) -> log_pb2.LogPosition:
        """See `Shard.connect`."""
        return self._wait(self._shard.connect(timeout=timeout))

    def truncate(self, lsn: int, *, timeout: float | None = None) -> int:
        """See `Shard.truncate`."""
        return self._wait(self._shard.truncate(lsn, timeout=timeout))

    def status(
        self, *, stale: bool = False, timeout: float | None = None
    ) -> log_pb2.GetShardStatusResponse:
        """See `Shard.status`."""
        return self._wait(self._shard.status(stale=stale, timeout=timeout))

    def acquire_writer(
        self,
        holder: str,
        *,
        expected_epoch: int = 0,
        takeover: bool = False,
        override: bool = False,
        timeout: float | None = None,
    ) -> int:
        """See `Shard.acquire_writer`."""
        return self._wait(
            self._shard.acquire_writer(
                holder,
                expected_epoch=expected_epoch,
                takeover=takeover,
                override=override,
                timeout=timeout,
            )
        )

    def release_writer(
        self, *, epoch: int = 0, override: bool = False, timeout: float | None = None
    ) -> None:
        """See `Shard.release_writer`."""
        self._wait(self._shard.release_writer(epoch=epoch, override=override, timeout=timeout))

    def set_hold(
        self, name: str, lsn: int, *, override: bool = False, timeout: float | None = None
    ) -> None:
        """See `Shard.set_hold`."""
        self._wait(self._shard.set_hold(name, lsn, override=override, timeout=timeout))

    def release_hold(
        self, name: str, *, override: bool = False, timeout: float | None = None
    ) -> None:
        """See `Shard.release_hold`."""
        self._wait(self._shard.release_hold(name, override=override, timeout=timeout))

    def allocate_timestamps(self, count: int = 1, *, timeout: float | None = None) -> range:
        """See `Shard.allocate_timestamps`."""
        return self._wait(self._shard.allocate_timestamps(count, timeout=timeout))


class SyncHakeeperClient:
    """See `HakeeperClient`."""

    def __init__(self, client: SyncLogClient) -> None:
        """Get it from `SyncLogClient.hakeeper`."""
        self._wait = client._wait
        self._hakeeper = client._client.hakeeper

    def cluster_state(
        self, *, stale: bool = False, timeout: float | None = None
    ) -> hakeeper_pb2.ClusterState:
        """See `HakeeperClient.cluster_state`."""
        return self._wait(self._hakeeper.cluster_state(stale=stale, timeout=timeout))

    def shard_info(self, shard_id: int, *, timeout: float | None = None) -> hakeeper_pb2.ShardInfo:
        """See `HakeeperClient.shard_info`."""
        return self._wait(self._hakeeper.shard_info(shard_id, timeout=timeout))

    def create_shard(
        self,
        *,
        shard_id: int = 0,
        name: str = "",
        replicas: int = 0,
        timeout: float | None = None,
    ) -> int:
        """See `HakeeperClient.create_shard`."""
        return self._wait(
            self._hakeeper.create_shard(
                shard_id=shard_id, name=name, replicas=replicas, timeout=timeout
            )
        )

    def admit_store(
        self, store_id: str, *, hakeeper: bool = False, timeout: float | None = None
    ) -> None:
        """See `HakeeperClient.admit_store`."""
        self._wait(self._hakeeper.admit_store(store_id, hakeeper=hakeeper, timeout=timeout))

    def set_joining(self, joining: str, *, timeout: float | None = None) -> None:
        """See `HakeeperClient.set_joining`."""
        self._wait(self._hakeeper.set_joining(joining, timeout=timeout))

    def allocate_ids(self, count: int = 1, *, key: str = "", timeout: float | None = None) -> range:
        """See `HakeeperClient.allocate_ids`."""
        return self._wait(self._hakeeper.allocate_ids(count, key=key, timeout=timeout))
