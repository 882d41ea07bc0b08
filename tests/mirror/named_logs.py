"""A cluster without HAKeeper whose logs have names, as a mirror looks for them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from logservice_client import LogClient, Shard
from logservice_wire.errors import ShardNotFound

from tests.server.served import Served


class NamedLogs:
    """What a mirror needs of a `LogClient`."""

    def __init__(self, served: Served, client: LogClient) -> None:
        """No log has a name yet."""
        self.hakeeper = self
        self.names: dict[str, int] = {}
        self.full: list[str] = []
        self.away = False
        self._served = served
        self._client = client

    async def resolve_shard(self, name: str, *, fresh: bool) -> Any:
        if name not in self.names:
            raise ShardNotFound(name)
        return SimpleNamespace(shard_id=self.names[name])

    async def create_shard(self, *, name: str, shard_id: int) -> int:
        assert not shard_id
        self.names[name] = int(await self._served.new_shard())
        return self.names[name]

    async def cluster_state(self) -> Any:
        stores = [
            SimpleNamespace(
                store_id=one, expired=False, directories=[SimpleNamespace(full=one in self.full)]
            )
            for one in ("s1", "s2")
        ]
        return SimpleNamespace(stores=stores)

    def shard(self, shard_id: int) -> Shard:
        return self._client.shard(shard_id)

    def again(self, client: LogClient) -> NamedLogs:
        """The same, as another process sees it."""
        made = NamedLogs(self._served, client)
        made.names = self.names
        return made
