"""truncation_view: `logctl shards --truncation`: what holds the space of each replica.

HAKeeper says where the stores are; if it is silent, the stores that answer say so. Each store is
asked for its own replicas, page by page, because only its truncation worker knows. A store that
does not answer is named on stderr, and the exit code says that rows are missing.
"""

from __future__ import annotations

import concurrent.futures
import math
from collections.abc import Iterator
from typing import Final

from logservice_wire.errors import LogServiceError
from logservice_wire.rpcs import GET_TRUNCATION
from logservice_wire.v1 import admin_pb2

from logservice.cli.ctl.client_session import Session
from logservice.cli.ctl.direct_call import call_store
from logservice.cli.ctl.shard_filter import ShardFilter
from logservice.cli.ctl.time_left import left_s, now_s
from logservice.cli.ctl.without_hakeeper import remembered, remembered_shards, state_of, taken
from logservice.cli.shell import exit_codes
from logservice.cli.shell.output import Row, show_rows
from logservice.safe_text import safe_text

_ASKED_AT_ONCE: Final = 16

_MAIN: Final = (
    "shard",
    "store",
    "truncated_lsn",
    "held_by",
    "retained_bytes",
    "truncatable_bytes",
    "decision",
)


def show_truncation(session: Session, form: str, wanted: ShardFilter, *, stuck: bool) -> int:
    """Print the rows of the shards that are wanted; `stuck`: only of replicas that are stuck."""
    stores, ids, code = _asked_of(session, wanted, form)
    rows: list[Row] = []
    each_s = session.timeout_s / max(1, math.ceil(len(stores) / _ASKED_AT_ONCE))
    with concurrent.futures.ThreadPoolExecutor(_ASKED_AT_ONCE) as pool:
        asked = {
            store: pool.submit(_asked, session, address, wanted.shard, each_s, stuck=stuck)
            for store, address in sorted(stores.items())
        }
        for store, answer in asked.items():
            try:
                rows += [
                    _row(store, found)
                    for found in answer.result()
                    if ids is None or found.shard_id in ids
                ]
            except LogServiceError as error:
                text = f"{safe_text(store)} does not answer: {safe_text(error.message)}"
                exit_codes.tell_error(form, error, text)
                code = exit_codes.UNAVAILABLE
    rows.sort(key=lambda row: (row["shard"], row["store"]))
    title = "replicas that are stuck" if stuck else "truncation"
    show_rows(form, rows, title, main=_MAIN, if_any=("visits_stalled", "error"))
    return code


def _asked_of(
    session: Session, wanted: ShardFilter, form: str
) -> tuple[dict[str, str], frozenset[int] | None, int]:
    """Where to ask, by the stores' names; about which shards, None for all that they are asked
    about; and the exit code if all of them answer.
    """
    state = state_of(session)
    if isinstance(state, LogServiceError):
        report = remembered(session, state, form, more_follows=True)
        stores = {one.store: one.client_address for one in report.stores if one.client_address}
        if not wanted.by_content:
            return stores, None, exit_codes.UNAVAILABLE
        ids = frozenset(one.shard for one in remembered_shards(report, wanted))
        return stores if ids else {}, ids, exit_codes.UNAVAILABLE
    stores = {one.store_id: one.client_address for one in state.stores}
    found = list(taken(state, wanted))
    members = {item.store_id for one in found for item in one.replicas}
    its = {store: stores[store] for store in stores if store in members}
    if wanted.by_content:
        return its, frozenset(one.shard_id for one in found), exit_codes.OK
    # Of an id that HAKeeper does not know, a store may have a replica all the same.
    return its if wanted.shard is not None and its else stores, None, exit_codes.OK


def _asked(
    session: Session, address: str, shard: int | None, limit_s: float, *, stuck: bool
) -> list[admin_pb2.TruncationStanding]:
    return list(_pages(session, address, shard, limit_s, stuck=stuck))


def _pages(
    session: Session, address: str, shard: int | None, limit_s: float, *, stuck: bool
) -> Iterator[admin_pb2.TruncationStanding]:
    request = admin_pb2.GetTruncationRequest(
        from_shard=shard or 0, limit=0 if shard is None else 1, stuck=stuck
    )
    ends_s = now_s() + min(limit_s, session.timeout_s)
    while True:
        found = call_store(address, GET_TRUNCATION, request, left_s(ends_s), session.tls)
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
