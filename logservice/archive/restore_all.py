"""restore_all: all logs of an archive into an empty cluster.

Theory of operation. The cluster document (`cluster_document`) says which logs lived, and how they
are called and kept. Each of them that the archive has records of is restored under its old id and
name, one after the other; limits, protection and the rest of its policy come when it is open, so
that nothing slows the restore down; but its retention stays off, and the row says so. A log that
was closed at the archived end is closed again. Logs that are in the archive and did not live any
more are left out. A log that cannot be restored does not stop the others: its row of the table says
why.

*Empty* means that every log of the cluster is one of these, and is new or was begun by an earlier
attempt: so the command can be started again, and goes on. Anything else is refused before anything
is changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from logservice_client import LogClient
from logservice_wire.errors import InvalidArgument, LogServiceError
from logservice_wire.v1 import hakeeper_pb2

from logservice import bounds
from logservice.archive import cluster_document
from logservice.archive.cluster_document import Document, LogEntry
from logservice.archive.folder import Files
from logservice.archive.manifest import Manifest, marked, shard_ids
from logservice.archive.restore_plan import Plan, make_plan
from logservice.archive.restoring import Restorer
from logservice.archive.sealing import Keys


@dataclass(slots=True)
class Result:
    """What became of one log."""

    shard_id: int
    name: str
    state: str = ""
    first_lsn: int | None = None
    end_lsn: int | None = None
    records: int | None = None
    problem: str = ""


class RestoreAll:
    """One archive, one cluster."""

    def __init__(
        self,
        client: LogClient,
        files: Files,
        keys: Keys | None = None,
        *,
        bytes_per_s: int = bounds.RESTORE_BYTES_PER_S,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._files = files
        self._keys = keys
        self._bytes_per_s = bytes_per_s
        self._progress = progress

    async def run(self, *, check: bool = False, grants: bool = False) -> list[Result]:
        """`check`: look at everything, change nothing. `grants`: give the archived grants, too.

        Raises InvalidArgument when the cluster is not empty, or the archive has no document.
        """
        document = await asyncio.to_thread(cluster_document.newest, self._files)
        if document is None or document.cluster_id != marked(self._files):
            raise InvalidArgument(
                "the archive does not say which logs lived: restore them one by one", field="target"
            )
        present = await self._present(document)
        archived = set(await asyncio.to_thread(shard_ids, self._files))
        results = []
        if not check:
            await self._set_settings(document)
        for entry in sorted(document.logs, key=lambda one: one.shard_id):
            result = Result(entry.shard_id, entry.name)
            results.append(result)
            if entry.shard_id not in archived:
                result.state = "not archived"
                continue
            try:
                await self._one(entry, present.get(entry.shard_id), result, check=check)
            except (LogServiceError, OSError) as error:
                result.state, result.problem = "refused", str(error)
        for shard_id in sorted(archived - {one.shard_id for one in document.logs}):
            row = Manifest(self._files, shard_id).last_row()
            results.append(Result(shard_id, "" if row is None else row.name, "was deleted"))
        if grants and not check:
            await self._grant(document)
        return results

    async def _present(self, document: Document) -> dict[int, hakeeper_pb2.ShardInfo]:
        """The logs of the cluster. Raises InvalidArgument when one of them is in use."""
        wanted = {one.shard_id for one in document.logs}
        present = {one.shard_id: one for one in await self._client.hakeeper.list_shards()}
        for shard_id, info in present.items():
            status = await self._client.shard(shard_id).status()
            begun = status.HasField("restoring") or status.position.lineage.number > 0
            new = status.position.applied_lsn == 0 and not (status.writer_epoch or status.sessions)
            if not new and not (begun and shard_id in wanted):
                raise InvalidArgument(
                    f"the cluster is not empty: log {shard_id} ({info.name}) is in use",
                    field="cluster",
                )
        return present

    async def _set_settings(self, document: Document) -> None:
        """But for who may join: that is about the machines of this cluster."""
        await self._client.hakeeper.change_settings(
            store_timeout_s=document.store_timeout_ms / 1000,
            default_replicas=document.default_replicas,
            replica_balance=document.replica_balance,
            leader_balance=document.leader_balance,
            replace_stuck=document.replace_stuck,
            catch_up_bytes_per_s=document.catch_up_bytes_per_s or None,
        )

    async def _one(
        self,
        entry: LogEntry,
        present: hakeeper_pb2.ShardInfo | None,
        result: Result,
        *,
        check: bool,
    ) -> None:
        client = self._client
        begun = None
        if present is not None:
            status = await client.shard(entry.shard_id).status()
            begun = status.restoring if status.HasField("restoring") else None
        self._progress(f"log {entry.shard_id}: is checked")
        plan = await asyncio.to_thread(
            make_plan,
            self._files,
            entry.shard_id,
            self._keys,
            from_lsn=None if begun is None else begun.base_lsn,
            end_lsn=None if begun is None else begun.end_lsn,
        )
        result.first_lsn, result.end_lsn, result.records = plan.base_lsn, plan.end_lsn, plan.records
        if check:
            result.state = "can be restored"
            return
        await self._make(entry, present)
        fresh = await self._restore(entry, plan)
        await client.hakeeper.change_shard(
            entry.shard_id, name=entry.name, policy=entry.policy(), labels=entry.labels
        )
        result.state = "restored" if fresh else "was restored"
        if entry.retention:
            result.state += ", retention off"
        if entry.state == "closed":
            if entry.end_lsn == plan.end_lsn:
                await client.shard(entry.shard_id).close_log()
                result.state += ", closed"
            else:
                result.problem = f"it was closed at LSN {entry.end_lsn}, and is open"

    async def _make(self, entry: LogEntry, present: hakeeper_pb2.ShardInfo | None) -> None:
        if present is None:
            await self._client.hakeeper.create_shard(
                shard_id=entry.shard_id,
                name=entry.name,
                replicas=entry.replicas,
                witnesses=entry.witnesses,
                waive_g1=entry.witnesses > 0,
            )
        await self._client.shard(entry.shard_id).connect(timeout=bounds.RESTORE_PATIENCE_S)

    async def _restore(self, entry: LogEntry, plan: Plan) -> bool:
        def progress(lsn: int) -> None:
            self._progress(f"log {entry.shard_id}: LSN {lsn - 1} of {plan.end_lsn - 1}")

        restorer = Restorer(
            self._client.shard(entry.shard_id),
            self._files,
            plan,
            self._keys,
            bytes_per_s=self._bytes_per_s,
            progress=progress,
        )
        return await restorer.run()

    async def _grant(self, document: Document) -> None:
        """A client's identity names its cluster, so it is the same client of this one. Raises
        InvalidArgument when the archive has no grants.
        """
        if document.grants is None:
            raise InvalidArgument("the archive has no grants", field="grants")
        own = (await self._client.hakeeper.cluster_state()).cluster_id
        for one in document.grants:
            identity = one.identity.replace(f"/{document.cluster_id}/client/", f"/{own}/client/")
            await self._client.hakeeper.change_access(identity, one.scope, grant=one.roles)
