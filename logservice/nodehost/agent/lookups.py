"""Lookups: where a log is and what it is called, from whoever can tell now.

Theory of operation. HAKeeper knows best, and its replicas answer while one of them runs. Where they
do not answer in a moment, this store's own directory answers, and the answer says how old it is. So
it does at once while heartbeats are not answered: a client that waits asks the next store, too. A
caller who wants no such answer says `fresh`. The directory never says that there is no such log:
what it does not know is NOT_READY, until HAKeeper answers.

An answer from the directory names the members and their addresses, and the leader only of a log
that has a replica here. That is what a client needs: any member knows its leader.

References: `directory`, `hakeeper_client`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from logservice_wire.errors import LogServiceError

from logservice import bounds
from logservice.hakeeper.answers.directory import DirectoryRow
from logservice.hakeeper.answers.views import ReplicaView, ShardView, role_of
from logservice.ids import Index, Lsn, ReplicaId, ShardId, StoreId
from logservice.membership import decoded
from logservice.nodehost.agent.directory import Directory
from logservice.nodehost.agent.hakeeper_client import HAKeeperClient


@dataclass(frozen=True, slots=True)
class Found:
    """A log, None where HAKeeper says that there is none. `index` and `age_s`: of the directory
    that the answer is from, 0 where it is HAKeeper's.
    """

    view: ShardView | None
    index: int = 0
    age_s: float = 0.0


class Lookups:
    """One per store."""

    def __init__(
        self,
        client: HAKeeperClient,
        directory: Directory,
        address_of: Callable[[StoreId], str],
        leader_of: Callable[[ShardId], ReplicaId],
        silent_s: float = bounds.DIRECTORY_SILENT_S,
    ) -> None:
        """`address_of`: where a store listens for clients, "" when that is not known. `leader_of`:
        the leader of a log that has a replica here, else 0. `silent_s`: HAKeeper is silent when the
        directory is older than that.
        """
        self._client = client
        self._directory = directory
        self._address_of = address_of
        self._leader_of = leader_of
        self._silent_s = silent_s

    async def shard(self, shard: ShardId, timeout_s: float, *, fresh: bool) -> Found:
        """The log of that id. Raises NotReady."""
        row = self._directory.row(shard)
        if fresh or row is None:
            return Found(await self._ask(shard, timeout_s, fresh=fresh))
        if self._directory.age_s() > self._silent_s:
            return self._known(row)
        limit_s = min(timeout_s, bounds.DIRECTORY_PATIENCE_S)
        return await self._or_known(self._ask(shard, limit_s, fresh=False), row)

    async def resolve(self, name: str, timeout_s: float, *, fresh: bool) -> Found:
        """The living log of that name. Raises NotReady."""
        row = self._directory.resolve(name)
        if fresh or row is None:
            return Found(await self._client.resolve(name, timeout_s))
        if self._directory.age_s() > self._silent_s:
            return self._known(row)
        limit_s = min(timeout_s, bounds.DIRECTORY_PATIENCE_S)
        return await self._or_known(self._client.resolve(name, limit_s), row)

    async def name_of(self, shard: ShardId, access_version: int) -> str | None:
        """The name of a log, at least as new as that access list; None when there is no such log.

        Raises NotReady when that cannot be told.
        """
        known = self._directory.name_of(shard, access_version)
        if known is not None:
            return known
        limit_s = bounds.HAKEEPER_ATTEMPT_TIMEOUT_S
        # A replica of shard 0 that is behind the list may know an older name. So only the one here
        # is asked for what it has: two answers of another store may be those of two replicas.
        current = False
        if self._client.answers_here:
            listed = await self._client.access_list(limit_s, stale=True)
            current = listed.version >= access_version
        view = await self._client.shard(shard, limit_s, stale=current)
        if view is None and current:
            # It may be behind a shard that is newer than the list.
            view = await self._client.shard(shard, limit_s)
        return view.name if view is not None else None

    async def _ask(self, shard: ShardId, timeout_s: float, *, fresh: bool) -> ShardView | None:
        view = await self._client.shard(shard, timeout_s, stale=not fresh)
        if view is None and not fresh:
            # The view may be older than the shard: ask again, linearizably, before saying no.
            view = await self._client.shard(shard, timeout_s)
        return view

    async def _or_known(self, asking: Awaitable[ShardView | None], row: DirectoryRow) -> Found:
        try:
            return Found(await asking)
        except LogServiceError as error:
            if not error.retryable:
                raise
        return self._known(row)

    def _known(self, row: DirectoryRow) -> Found:
        return Found(self._view(row), self._directory.index, self._directory.age_s())

    def _view(self, row: DirectoryRow) -> ShardView:
        members = decoded(row.membership)
        leader = self._leader_of(row.shard)
        replicas = tuple(
            ReplicaView(
                one.replica_id,
                one.store_id,
                one.incarnation,
                role_of(members, one.replica_id),
                reported=False,
                leader=one.replica_id == leader,
                health="",
                applied_index=Index(0),
                first_lsn=Lsn(0),
                applied_lsn=Lsn(0),
                client_address=self._address_of(one.store_id),
            )
            for one in sorted(members.members, key=lambda one: one.replica_id != leader)
            if members.contains(one.replica_id)
        )
        leading = next((one for one in replicas if one.leader), None)
        return ShardView(
            row.shard,
            row.name,
            row.wanted,
            replicas,
            leading.store_id if leading is not None else "",
            leading.client_address if leading is not None else "",
            0,
            members.change_epoch,
            members.joint,
            tuple(
                dict.fromkeys(
                    one.client_address
                    for one in replicas
                    if one.client_address and one.role != "witness"
                )
            ),
            state=row.state,
        )
