"""truncation_view: `logctl shards --truncation`: what holds the space of each replica.

HAKeeper says where the stores are; if it is silent, the stores that answer say so. Each store is
asked for its own replicas, page by page, because only its truncation worker knows. A store that
does not answer is named on stderr, and the exit code says that rows are missing.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterator
from typing import Final

from logservice_wire.errors import LogServiceError
from logservice_wire.rpcs import GET_TRUNCATION
from logservice_wire.v1 import admin_pb2

from logservice.cli.ctl.client_session import Session
from logservice.cli.ctl.direct_call import call_store
from logservice.cli.ctl.without_hakeeper import remembered, state_of
from logservice.cli.shell import exit_codes
from logservice.cli.shell.output import Row, show_rows
from logservice.safe_text import safe_text

_ASKED_AT_ONCE: Final = 16


def show_truncation(session: Session, form: str, shard: int | None, *, stuck: bool) -> int:
    """Print the rows, of one shard or of all; `stuck`: only of replicas that are stuck."""
    stores, code = _stores(session, shard, form)
    rows: list[Row] = []
    with concurrent.futures.ThreadPoolExecutor(_ASKED_AT_ONCE) as pool:
        asked = {
            store: pool.submit(_asked, session, address, shard, stuck=stuck)
            for store, address in sorted(stores.items())
        }
        for store, answer in asked.items():
            try:
                rows += [_row(store, found) for found in answer.result()]
            except LogServiceError as error:
                text = f"{safe_text(store)} does not answer: {safe_text(error.message)}"
                exit_codes.tell_error(form, error, text)
                code = exit_codes.UNAVAILABLE
    rows.sort(key=lambda row: (row["shard"], row["store"]))
    show_rows(form, rows, "replicas that are stuck" if stuck else "truncation")
    return code


def _stores(session: Session, shard: int | None, form: str) -> tuple[dict[str, str], int]:
    """Where to ask, by the stores' names, and the exit code if all of them answer."""
    state = state_of(session)
    if isinstance(state, LogServiceError):
        report = remembered(session, state, form)
        found = {one.store: one.client_address for one in report.stores if one.client_address}
        return found, exit_codes.UNAVAILABLE
    members = {
        item.store_id for one in state.shards if one.shard_id == shard for item in one.replicas
    }
    # Of a shard that HAKeeper does not know, a store may have a replica all the same.
    return {
        one.store_id: one.client_address
        for one in state.stores
        if not members or one.store_id in members
    }, exit_codes.OK


def _asked(
    session: Session, address: str, shard: int | None, *, stuck: bool
) -> list[admin_pb2.TruncationStanding]:
    return list(_pages(session, address, shard, stuck=stuck))


def _pages(
    session: Session, address: str, shard: int | None, *, stuck: bool
) -> Iterator[admin_pb2.TruncationStanding]:
    request = admin_pb2.GetTruncationRequest(
        from_shard=shard or 0, limit=0 if shard is None else 1, stuck=stuck
    )
    while True:
        found = call_store(address, GET_TRUNCATION, request, session.timeout_s, session.tls)
        yield from (one for one in found.replicas if shard in (None, one.shard_id))
        # A page that would begin where this one did came from no store of ours.
        if shard is not None or found.next_shard <= request.from_shard:
            return
        request.from_shard = found.next_shard


def _row(store: str, found: admin_pb2.TruncationStanding) -> Row:
    held = found.requested_lsn > found.truncated_lsn
    return {
        "shard": found.shard_id,
        "store": store,
        "replica": found.replica_id,
        "truncated_lsn": found.truncated_lsn,
        "requested_lsn": found.requested_lsn,
        "held_by": found.hold_name if held else None,
        "hold_owner": found.hold_owner if held else None,
        "hold_lsn": found.hold_lsn if held else None,
        "installed_lsn": found.installed_lsn,
        "installed_index": found.installed_index,
        "exports": found.exports,
        "newest_export_index": found.newest_export_index,
        "export_bytes": found.export_bytes,
        "retained_bytes": found.retained_bytes,
        "truncatable_bytes": found.truncatable_bytes,
        "freed_bytes": found.freed_bytes,
        "decision": found.decision or None,
        "export_decision": found.export_decision or None,
        "decided_s_ago": found.decided_ms_ago / 1000,
        "visits_stalled": found.visits_stalled,
        "error": found.error or None,
    }
