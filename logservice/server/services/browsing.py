"""browsing: records and the access list for people at the admin port, by the rules of the RPCs.

Theory of operation. A page of records is a Read for its caller: the gate admits it as one, it is
one call of the caller's quota, it takes its memory and its turn as every read does, and the audit
log has it as one. It always counts as a catch-up read, so that no person who leafs through a log
costs a reader at the tail anything. It shows what this replica has applied (a stale read), because
a person looks at a log that has no leader, too.

What is read is bounded by bytes and by records, and of a large value the beginning is shown. A
compressed block is opened only as far as that costs the event loop little.

Grants are shown as GetAccessList shows them, which is administration: the line of the audit log is
written first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, cast

import grpc
from logservice_wire.block import Block
from logservice_wire.errors import CodecMissing, CorruptBlock, LogServiceError
from logservice_wire.rpcs import GET_ACCESS_LIST, READ, Rpc
from logservice_wire.v1 import hakeeper_pb2, log_pb2
from msgspec.structs import replace

from logservice import bounds
from logservice.access import CLUSTER, EVERYTHING, Grant
from logservice.ids import HAKEEPER_SHARD, Lsn, ShardId
from logservice.nodehost.agent.directory import Directory
from logservice.nodehost.replica.log_reading import LogRun, LogSlice
from logservice.nodehost.replica.read_limits import ReadClass
from logservice.server.edge.auditor import Auditor
from logservice.server.edge.call import Context
from logservice.server.edge.gate import Caller, Gate, calling
from logservice.server.edge.identity_book import IdentityBook
from logservice.server.monitor.port.guarded_pages import (
    GrantRow,
    GrantsPage,
    GrantsQuestion,
    RecordRow,
    RecordsPage,
    RecordsQuestion,
    Shown,
)
from logservice.server.services import reading
from logservice.server.services.context import StoreContext, log_shard, shard_not_found
from logservice.server.services.reading_turns import read_in_turn, take_answer

_WAIT_S: Final = 3.0
"""How long a page waits for memory and its turn; the admin port waits ADMIN_LOOP_WAIT_S for all."""


class Browsing:
    """One per store, on the loop thread."""

    def __init__(
        self,
        store: StoreContext,
        gate: Gate,
        auditor: Auditor,
        directory: Directory,
        seen: IdentityBook,
    ) -> None:
        """Serve the replicas of `store`."""
        self._seen = seen
        self._store = store
        self._gate = gate
        self._auditor = auditor
        self._directory = directory

    async def records(self, caller: Caller, peer: str, asked: RecordsQuestion) -> RecordsPage:
        """A page. Raises PermissionDenied, Busy, ShardNotFound, Truncated, BeyondTail, and what
        else Read does.
        """
        shard, call = log_shard(asked.shard), _Call(peer)
        self._begin_call(caller)
        try:
            await self._admit(READ, call, caller, shard)
            page: RecordsPage | None = None
            try:
                page = await self._page(caller, shard, asked)
            finally:
                if self._auditor.data:
                    self._told(call, caller, shard, asked, page)
            return page
        finally:
            caller.quota.end_rpc()

    async def grants(self, caller: Caller, peer: str, asked: GrantsQuestion) -> GrantsPage:
        """A page. Raises PermissionDenied, Busy, and NotReady when it cannot be audited."""
        call, request = _Call(peer), hakeeper_pb2.GetAccessListRequest()
        self._begin_call(caller)
        try:
            await self._admit(GET_ACCESS_LIST, call, caller, HAKEEPER_SHARD)
            await self._auditor.admitted(
                GET_ACCESS_LIST, call.context, caller, HAKEEPER_SHARD, request
            )
            page = self._grants(caller, asked)
            self._auditor.ended(
                GET_ACCESS_LIST, call.context, caller, HAKEEPER_SHARD, request, page
            )
            return page
        finally:
            caller.quota.end_rpc()

    # --- inside -----------------------------------------------------------------------------------

    def _begin_call(self, caller: Caller) -> None:
        """The admin port has noted that the caller was here (`monitor.port.caller`)."""
        calling.set(caller.uri)
        caller.quota.begin_rpc()

    async def _admit(self, rpc: Rpc[Any, Any], call: _Call, caller: Caller, shard: ShardId) -> None:
        try:
            await self._gate.admit(caller, rpc, shard)
        except LogServiceError as error:
            self._auditor.denied(rpc, call.context, caller, shard, error)
            raise

    def _told(
        self,
        call: _Call,
        caller: Caller,
        shard: ShardId,
        asked: RecordsQuestion,
        page: RecordsPage | None,
    ) -> None:
        lsn = page.lsn if page is not None else asked.lsn
        request = log_pb2.ReadRequest(shard_id=shard, lsn=lsn)
        found = log_pb2.ReadResponse(next_lsn=page.next_lsn) if page is not None else None
        self._auditor.ended(READ, call.context, caller, shard, request, found)

    async def _page(self, caller: Caller, shard: ShardId, asked: RecordsQuestion) -> RecordsPage:
        host = self._store.host
        if host.replicas.info(shard) is None:
            raise shard_not_found(shard)
        count = min(max(1, asked.count), bounds.ADMIN_RECORDS_SHOWN)
        lsn = await self._begin(shard, asked, count)
        kind, size = ReadClass.CATCH_UP, bounds.ADMIN_RECORDS_BYTES
        needed = reading.at_most(size) + bounds.ADMIN_OPENED_BYTES_MAX
        taken = await take_answer(self._store, kind, needed, _WAIT_S)
        try:
            found = await read_in_turn(self._store, kind, shard, lsn, size, _WAIT_S)
            rows, next_lsn = rows_of(found, lsn, count)
        finally:
            taken.give_back()
        if caller.quota.counts_bytes:
            caller.quota.take_bytes(sum(len(run.block) for run in found.runs))
        return RecordsPage(
            store=host.identity.store_id,
            shard=shard,
            lsn=lsn,
            next_lsn=next_lsn,
            first_lsn=found.first_lsn,
            applied_lsn=found.applied_lsn,
            end_lsn=found.end_lsn,
            who=caller.uri,
            rows=rows,
        )

    async def _begin(self, shard: ShardId, asked: RecordsQuestion, count: int) -> Lsn:
        first_lsn, applied_lsn = self._store.host.replicas.running[shard].log_bounds
        if asked.latest:
            return Lsn(max(first_lsn, applied_lsn - count + 1, 1))
        if asked.lsn:
            return Lsn(asked.lsn)
        if asked.time_us:
            found = await reading.search(self._store, shard, asked.time_us, _WAIT_S)
            return Lsn(found.lsn)
        return Lsn(max(first_lsn, 1))

    def _grants(self, caller: Caller, asked: GrantsQuestion) -> GrantsPage:
        access, identities = self._gate.access, self._gate.identities
        listed = access.list
        rules = [("deny", one) for one in listed.denials]
        rules += [("grant", one) for one in listed.grants]
        found = [rule for rule in rules if _contains(rule, asked.filter)]
        shown = found[asked.offset : asked.offset + min(asked.count, bounds.ADMIN_GRANTS_SHOWN)]
        return GrantsPage(
            store=self._store.host.identity.store_id,
            version=listed.version,
            current=access.current,
            too_old=access.too_old,
            admins=tuple(sorted(identities.admins)) if identities is not None else (),
            rows=tuple(self._rule(kind, one) for kind, one in shown),
            offset=asked.offset,
            matching=len(found),
            rules=len(rules),
            who=caller.uri,
        )

    def _rule(self, kind: str, one: Grant) -> GrantRow:
        seen = self._seen.rows(only=one.identity)
        return GrantRow(
            rule=kind,
            identity=one.identity,
            scope=one.scope,
            roles=one.roles,
            logs=self._logs(one.scope),
            used_us=int(seen[0].last_s * 1e6) if seen else 0,
        )

    def _logs(self, scope: str) -> int:
        """How many logs the scope of a grant names, as far as the directory knows."""
        if scope in (EVERYTHING, CLUSTER):
            return -1
        kind, _, rest = scope.partition("/")
        if kind == "shard":
            return int(self._directory.row(ShardId(int(rest))) is not None)
        if rest.endswith("*"):
            return self._directory.count_names(rest[:-1])
        return int(self._directory.resolve(rest) is not None)


class _Call:
    """What the auditor asks of a gRPC call, of a request to the admin port."""

    def __init__(self, peer: str) -> None:
        self._peer = peer

    @property
    def context(self) -> Context:
        return cast(Context, self)

    def peer(self) -> str:
        return self._peer

    @staticmethod
    def code() -> grpc.StatusCode:
        """Of a call that has no answer."""
        return grpc.StatusCode.UNKNOWN


def _contains(rule: tuple[str, Grant], text: str) -> bool:
    kind, one = rule
    words = (kind, one.identity, one.scope, *one.roles)
    return not text or text in " ".join(words).lower()


def rows_of(found: LogSlice, lsn: Lsn, count: int) -> tuple[tuple[RecordRow, ...], int]:
    """At most `count` rows from `lsn` on, and the LSN behind the last of them."""
    rows: list[RecordRow] = []
    next_lsn = int(lsn)
    for run in found.runs:
        if len(rows) == count:
            break
        skipped = max(0, lsn - run.first_lsn)
        stop = min(run.record_count, skipped + count - len(rows))
        made = _whole(run) if run.gap is not None else _of_block(run, skipped, stop)
        rows += made
        next_lsn = made[-1].lsn + made[-1].count
    return tuple(rows), next_lsn


def _whole(run: LogRun, note: str = "", time_us: int = 0, *, wide: bool = False) -> list[RecordRow]:
    """One row for all LSNs of a run."""
    return [
        replace(
            _row_of(run),
            count=run.record_count,
            gap=run.gap.value if run.gap is not None else "",
            note=note,
            time_us=time_us,
            wide=wide,
        )
    ]


def _row_of(run: LogRun) -> RecordRow:
    """What every row of a run says alike."""
    return RecordRow(
        lsn=run.first_lsn,
        term=run.term,
        append_time_us=run.append_time_us,
        block_lsn=run.first_lsn,
        block_records=run.record_count,
        block_bytes=len(run.block),
    )


def _of_block(run: LogRun, start: int, stop: int) -> list[RecordRow]:
    try:
        block = Block.parse(run.block)
        if block.plain_bytes > bounds.ADMIN_OPENED_BYTES_MAX:
            note = (
                f"compressed, and {block.plain_bytes} bytes when it is opened: too large for here"
            )
            return _whole(run, note, block.timestamp_us, wide=True)
        return list(_records(run, block, start, stop))
    except CodecMissing as error:
        return _whole(run, error.message, wide=True)
    except CorruptBlock as error:
        return _whole(run, error.message)


def _records(run: LogRun, block: Block, start: int, stop: int) -> Iterator[RecordRow]:
    columns = block.columns().part(start, stop)
    rows = zip(
        columns.records(), columns.keys(), columns.times_us(), columns.headers(), strict=True
    )
    row = _row_of(run)
    for number, (value, key, time_us, headers) in enumerate(rows, start):
        yield replace(
            row,
            lsn=run.first_lsn + number,
            time_us=time_us,
            wide=block.wide,
            value=_shown(value),
            key=_shown(key) if key is not None else None,
            headers=tuple(
                (name[: bounds.ADMIN_VALUE_BYTES_SHOWN], _shown(content))
                for name, content in list(headers.items())[: bounds.ADMIN_HEADERS_SHOWN]
            ),
        )


def _shown(data: bytes) -> Shown:
    return Shown(size=len(data), hex=data[: bounds.ADMIN_VALUE_BYTES_SHOWN].hex())
