"""LogClient: the asyncio client. One per process is enough; handles share its connections."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from logservice_client.arguments import number
from logservice_client.caller import Caller, Traceparent
from logservice_client.channels import ChannelPool
from logservice_client.endpoints import parse_endpoints
from logservice_client.environment import from_environment
from logservice_client.hakeeper import HakeeperClient
from logservice_client.life import Life
from logservice_client.meter import Meter
from logservice_client.reporter import Reporter
from logservice_client.routing import Router
from logservice_client.shard import Shard
from logservice_client.tls import Tls, TlsFiles


class LogClient:
    """Talks to a cluster of stores. Make it inside a running event loop; close it there.

    ```python
    async with LogClient(["127.0.0.1:7401", "127.0.0.1:7402"]) as client:
        lsn = await client.shard(1).append(b"record")
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
        """`endpoints`: client addresses (host:port) of one or more stores, as a list or separated
        by commas. The others are found through them. No I/O happens here. Raises InvalidArgument
        for what is no address.

        `traceparent`: asked with every call for the W3C trace context it belongs to, "" for none;
        `otel.current_traceparent` is one. The stores' log lines, audit lines and spans name it.

        `zone`: where this process is, in the words of the stores' labels (``zone``, or
        ``region/zone``). Reads go to a replica there first; appends always go to the leader.

        `meter`: told what happens, for counters; `prometheus.Metrics()` and `otel.Metrics()` are
        such.
        """
        asyncio.get_running_loop()
        self._life = Life()
        addresses = parse_endpoints(endpoints)
        self._pool = ChannelPool(tls)
        reporter = Reporter(meter)
        self._router = Router(self._pool, addresses, zone, reporter)
        self._caller = Caller(self._pool, self._router, traceparent, reporter, self._life)
        self._shards: dict[int, Shard] = {}
        self.hakeeper = HakeeperClient(self._caller)

    @classmethod
    def from_env(
        cls,
        *,
        traceparent: Traceparent | None = None,
        zone: str = "",
        meter: Meter | None = None,
    ) -> Self:
        """A client of the cluster that ``LOGSERVICE_ENDPOINTS`` and ``LOGSERVICE_TLS_*`` name, as
        for `logctl` (`environment`). Raises InvalidArgument.
        """
        endpoints, tls = from_environment()
        return cls(endpoints, tls=tls, traceparent=traceparent, zone=zone, meter=meter)

    def shard(self, shard_id: int) -> Shard:
        """The handle of a log; the same one every time, so that all callers share its blocks."""
        self._life.check()
        number(shard_id, "shard_id", least=1)
        shard = self._shards.get(shard_id)
        if shard is None:
            shard = self._shards[shard_id] = Shard(self._caller, shard_id)
        return shard

    async def log(self, name: str, *, timeout: float | None = None) -> Shard:
        """The handle of the log that is called so now; raises ShardNotFound. Below cluster version
        2 it raises NotReady.

        The handle stays that log's when it is renamed. When it is deleted, calls raise
        ShardDeleted, also if another log got the name: ask again for that one.
        """
        return self.shard((await self.hakeeper.resolve_shard(name, timeout=timeout)).shard_id)

    def replica_addresses(self, shard_id: int) -> tuple[str, ...]:
        """Client addresses of the shard's replicas as last told by HAKeeper, leader first."""
        return self._router.replicas(shard_id)

    def near_addresses(self, shard_id: int) -> tuple[str, ...]:
        """Those of the replicas that run in this client's zone; empty when it names none."""
        return self._router.near(shard_id)

    def __repr__(self) -> str:
        state = ", closed" if self._life.closed else ""
        return f"<LogClient of {self._router.endpoints}{state}>"

    async def close(self) -> None:
        """Close connections. Whatever is under way ends with ClientClosed, whose `outcome` says
        whether it may have taken effect. Calling it again does nothing, and so does a forked child.
        """
        if self._life.closed or self._life.foreign:
            return
        self._life.close()
        for shard in self._shards.values():
            await shard.close()
        self._life.end_calls()
        await self._router.close()
        await self._pool.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
