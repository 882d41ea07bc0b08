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

INV-RESTORE-9: nothing that the archived cluster has given out once is given out again: ids of
AllocateIds, logs, replicas and TN shards, revisions of events. All of them go on far above what the
document says, and the ids of deleted logs stay those of deleted logs. So a log of the cluster that
is none of the archive's may not have an id that another one had.

INV-RESTORE-8: the archive's wishes for a log are set once. Where an earlier attempt has restored it
and its wishes were changed since it was created, they stay: that attempt set them, and an operator
may have gone on from there. A protection is never taken off.

Up to a point in time (`restore_point`) each log ends where it stood then. One of which the archive
has nothing that young was idle, or is not archived as far; nobody can tell, so it is restored as
far as it goes, and its row says so. A point that lies behind everything is refused, and one before
everything. Two attempts with two points would leave logs of two times side by side. INV-RESTORE-7:
what an earlier attempt began ends where this one would end it, or nothing is changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from logservice_client import LogClient
from logservice_wire.errors import InvalidArgument, LogServiceError
from logservice_wire.v1 import hakeeper_pb2, log_pb2

from logservice import bounds
from logservice.access import scoped_shard
from logservice.archive import cluster_document
from logservice.archive.archived_blocks import ArchivedBlocks
from logservice.archive.cluster_document import Document, Grant, LogEntry
from logservice.archive.folder import Files
from logservice.archive.manifest import Manifest, marked, shard_ids
from logservice.archive.restore_plan import Plan, end_of, make_plan
from logservice.archive.restore_point import PointTooEarly, PointTooLate
from logservice.archive.restoring import Restorer, check_no_mirror
from logservice.sealing_keys import Keys


@dataclass(slots=True)
class Result:
    """What became of one log."""

    shard_id: int
    name: str
    state: str = ""
    first_lsn: int | None = None
    end_lsn: int | None = None
    records: int | None = None
    last_append_us: int | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class End:
    """Where a log will end. next_lsn: None when it had no record by the point. error: why nobody
    knows, or why the point is not in the archive.
    """

    next_lsn: int | None = None
    error: LogServiceError | OSError | None = None

    @property
    def early(self) -> bool:
        """Whether the archive ends before the point."""
        return isinstance(self.error, PointTooLate)


class RestoreAll:
    """One archive, one cluster."""

    def __init__(
        self,
        client: LogClient,
        files: Files,
        keys: Keys | None = None,
        *,
        point_us: int | None = None,
        bytes_per_s: int = bounds.RESTORE_BYTES_PER_S,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`point_us`: up to that time; None: as far as the archive goes."""
        self._client = client
        self._files = files
        self._keys = keys
        self._point_us = point_us
        self._bytes_per_s = bytes_per_s
        self._progress = progress

    async def run(self, *, check: bool = False, grants: bool = False) -> list[Result]:
        """`check`: look at everything, change nothing. `grants`: give the archived grants, too.

        Raises InvalidArgument when the cluster is not empty, the archive has no document, or the
        point is not in it.
        """
        document = await asyncio.to_thread(cluster_document.newest, self._files)
        if document is None or document.cluster_id != marked(self._files):
            raise InvalidArgument(
                "the archive does not say which logs lived: restore them one by one", field="target"
            )
        archived = set(await asyncio.to_thread(shard_ids, self._files))
        ends = await asyncio.to_thread(
            self._ends, [one.shard_id for one in document.logs if one.shard_id in archived]
        )
        present = await self._present(document, ends)
        results = []
        if not check:
            await self._set_settings(document)
            await self._skip_numbers(document)
        for entry in sorted(document.logs, key=lambda one: one.shard_id):
            result = Result(entry.shard_id, entry.name)
            results.append(result)
            if entry.shard_id not in archived:
                result.state = "not archived"
                continue
            try:
                end = ends[entry.shard_id]
                await self._one(entry, present.get(entry.shard_id), end, result, check=check)
            except (LogServiceError, OSError) as error:
                result.state, result.problem = "refused", str(error)
        for shard_id in sorted(archived - {one.shard_id for one in document.logs}):
            row = Manifest(self._files, shard_id).last_row()
            results.append(Result(shard_id, "" if row is None else row.name, "was deleted"))
        if grants and not check:
            await self._grant(document)
        return results

    def _ends(self, logs: list[int]) -> dict[int, End]:
        """Where each of these logs will end. Raises InvalidArgument when the point is in none."""
        ends = {one: self._end(one) for one in logs}
        errors = [end.error for end in ends.values()]
        for kind, choose in ((PointTooLate, max), (PointTooEarly, min)):
            outside = [error for error in errors if isinstance(error, kind)]
            if outside and len(outside) == len(errors):
                raise choose(outside, key=lambda error: error.number("append_time_us"))
        return ends

    def _end(self, shard_id: int) -> End:
        try:
            return End(end_of(self._files, shard_id, self._keys, self._point_us))
        except PointTooEarly as error:
            return End(None, error)
        except PointTooLate as error:
            return End(error.number("lsn") + 1, error)
        except (LogServiceError, OSError) as error:
            return End(None, error)

    async def _present(
        self, document: Document, ends: dict[int, End]
    ) -> dict[int, hakeeper_pb2.ShardInfo]:
        """The logs of the cluster. Raises InvalidArgument when one of them is in use, or was begun
        with another end.
        """
        wanted = {one.shard_id for one in document.logs}
        numbers = document.numbers
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
            if shard_id not in wanted and numbers is not None and numbers.names(shard_id):
                raise InvalidArgument(
                    f"log {shard_id} ({info.name}) has an id that another log had in the archived "
                    "cluster: delete it, or begin a cluster without it",
                    field="cluster",
                )
            if begun:
                _check_end(shard_id, status, ends.get(shard_id, End()))
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
            tail_read_bytes_per_s=document.tail_read_bytes_per_s or None,
            catch_up_read_bytes_per_s=document.catch_up_read_bytes_per_s or None,
        )

    async def _skip_numbers(self, document: Document) -> None:
        """INV-RESTORE-9. It comes before the first log, which gets replica ids, too."""
        if document.numbers is None:
            self._progress(
                "the archive does not say which numbers were given out: ids of AllocateIds, of "
                "logs and of TN shards begin at 1 again"
            )
            return
        await self._client.hakeeper.skip_numbers(document.numbers.given_out())

    async def _one(
        self,
        entry: LogEntry,
        present: hakeeper_pb2.ShardInfo | None,
        end: End,
        result: Result,
        *,
        check: bool,
    ) -> None:
        client = self._client
        if isinstance(end.error, PointTooEarly) and end.error.number("lsn") == 1:
            result.state = "not written yet"
            return
        if end.error is not None and not end.early:
            raise end.error
        self._progress(f"log {entry.shard_id}: is checked")
        plan = await asyncio.to_thread(
            make_plan,
            self._files,
            entry.shard_id,
            self._keys,
            end_lsn=end.next_lsn,
            point_us=None if end.early else self._point_us,
        )
        result.first_lsn, result.end_lsn, result.records = plan.base_lsn, plan.end_lsn, plan.records
        result.last_append_us = plan.last_time_us or None
        whole = ", to its archived end" if end.early else ""
        if check:
            result.state = "can be restored" + whole
            return
        await self._make(entry, present)
        fresh = await self._restore(entry, plan)
        result.state = ("restored" if fresh else "was restored") + whole
        result.state += await self._set_wish(entry, fresh)
        if entry.state == "closed":
            if entry.end_lsn == plan.end_lsn:
                await client.shard(entry.shard_id).close_log()
                result.state += ", closed"
            elif self._point_us is None:
                result.problem = f"it was closed at LSN {entry.end_lsn}, and is open"

    async def _set_wish(self, entry: LogEntry, fresh: bool) -> str:
        """INV-RESTORE-8. Returns what to say about it; `fresh`: this attempt has restored it."""
        hakeeper, policy = self._client.hakeeper, entry.policy()
        now = await hakeeper.shard_info(entry.shard_id, fresh=True)
        if fresh or not now.revision:
            policy.protected = policy.protected or now.policy.protected
            await hakeeper.change_shard(
                entry.shard_id,
                name=entry.name,
                policy=policy,
                labels=entry.labels,
                revision=now.revision,
            )
            return ", retention off" if entry.retention else ""
        own = now.policy
        off = not (own.retention_age_s or own.retention_bytes or own.retention_records)
        return ", retention off" if entry.retention and off else ""

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
            plan.promise,
            ArchivedBlocks(self._files, plan, self._keys),
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
        keeper = self._client.hakeeper
        theirs = f"/{document.cluster_id}/client/"
        state = await keeper.cluster_state()
        own = f"/{state.cluster_id}/client/"
        logs = {one.shard_id for one in state.shards}
        # First what is denied: nobody gets in between by a grant that a denial goes with.
        for one in self._about(logs, document.denials):
            await keeper.change_denial(one.identity.replace(theirs, own), one.scope, deny=one.roles)
        for one in self._about(logs, document.grants):
            await keeper.change_access(
                one.identity.replace(theirs, own), one.scope, grant=one.roles
            )
        for quota in document.quotas:
            identity = quota.identity.replace(theirs, own)
            values: dict[str, Any] = quota.values()
            await keeper.set_quota(identity, **values)

    def _about(self, logs: Collection[int], rules: Iterable[Grant]) -> Iterator[Grant]:
        """The rules but those over a log that is not there, since it had been deleted, say."""
        for one in rules:
            shard = scoped_shard(one.scope)
            if shard is None or shard in logs:
                yield one
            else:
                self._progress(f"left out, there is no log {shard}: {one.identity} {one.scope}")


def _check_end(shard_id: int, status: log_pb2.GetShardStatusResponse, end: End) -> None:
    """Raises InvalidArgument unless an earlier attempt began the log with that end."""
    begun = status.position.lineage.fork_lsn + 1
    if status.HasField("restoring"):
        check_no_mirror(status.restoring)
        begun = status.restoring.end_lsn
    if begun != end.next_lsn:
        now = "is not there" if end.next_lsn is None else f"ends at LSN {end.next_lsn - 1}"
        raise InvalidArgument(
            f"log {shard_id} was begun up to LSN {begun - 1}, and {now} now: say the time that was "
            "said then, or begin in an empty cluster",
            field="to",
        )
