"""without_hakeeper: what `stores`, `shards` and `repairs` show while HAKeeper does not answer.

HAKeeper is asked first, for a part of the time only. If it is silent, the stores are asked what
they know: what they say of themselves, combined with the newest view of HAKeeper that one of them
remembers. The rows have the usual fields and `stale_s`, which says how old HAKeeper's part is, and
is null if no store can tell. The command says so on stderr and ends with `UNAVAILABLE`, so that no
script takes such rows for HAKeeper's answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from logservice_wire.errors import LogServiceError, NotReady, Reason
from logservice_wire.v1 import hakeeper_pb2

from logservice.cli.ctl.client_session import Session
from logservice.cli.ctl.report_time import REPORT_S, report_limit_s
from logservice.cli.ctl.shard_filter import ShardFilter
from logservice.cli.shell import exit_codes
from logservice.cli.shell.output import Row, say, show_rows
from logservice.safe_text import safe_text
from logservice.server.monitor.cluster.rows import ClusterReport, ShardRow, StoreRow

_SHARE_MAX: Final = 0.4
_SHARE_MIN: Final = 0.1
"""The share of the time that HAKeeper's own answer gets: the smaller one where a store would not
have the time for its report otherwise."""

_SILENT: Final = frozenset(
    {Reason.NOT_READY, Reason.DEADLINE, Reason.UNKNOWN_OUTCOME, Reason.NOT_LEADER, Reason.BUSY}
)


STORES_MAIN: Final = (
    "store",
    "alive",
    "mode",
    "replicas",
    "disk_used_bytes",
    "disk_free_bytes",
    "ticks_since_heartbeat",
)
STORES_IF_ANY: Final = (
    "mode_reason",
    "failed_directories",
    "drained_directories",
    "full_directories",
    "stale_s",
)
SHARDS_MAIN: Final = (
    "shard",
    "name",
    "state",
    "leader",
    "running",
    "wanted",
    "first_lsn",
    "applied_lsn",
)
SHARDS_IF_ANY: Final = ("joint", "stale_s")
"""Which columns of stores and shards people look for; `show_rows`."""


def state_of(session: Session) -> hakeeper_pb2.ClusterState | LogServiceError:
    """HAKeeper's answer, or why there is none. Other errors (access, arguments) are raised."""
    left_s = session.timeout_s
    limit_s = max(left_s * _SHARE_MIN, min(left_s * _SHARE_MAX, left_s - REPORT_S))
    try:
        return session.run(lambda client: client.hakeeper.cluster_state(timeout=limit_s))
    except LogServiceError as error:
        if not is_silence(error):
            raise
        return error


def is_silence(error: LogServiceError) -> bool:
    """Whether it says that nobody answered, and not that the answer is no."""
    return error.reason in _SILENT


def taken(
    state: hakeeper_pb2.ClusterState, wanted: ShardFilter
) -> Iterator[hakeeper_pb2.ShardInfo]:
    """The shards that are wanted. Raises NotReady of a cluster that does not tell what the filter
    asks: a store of release 0.1.0 says no states.
    """
    for one in state.shards:
        if wanted.takes(one.shard_id, one.name, one.state or None, one.labels):
            yield one


def remembered_shards(report: ClusterReport, wanted: ShardFilter) -> list[ShardRow]:
    """The shards that are wanted. Raises NotReady when what is remembered cannot tell."""
    return [
        one
        for one in report.shards
        if wanted.takes(one.shard, one.name or None, one.state or None, None)
    ]


def remembered(
    session: Session, silence: LogServiceError, form: str, *, more_follows: bool = False
) -> ClusterReport:
    """What the stores know. It first says on stderr what that is worth. Raises NotReady.

    `more_follows`: the stores are asked for something else afterwards, in the rest of the time.
    """
    from logservice.cli.ctl.outside_view import view_from_outside

    limit_s = session.timeout_s
    if more_follows:
        limit_s = report_limit_s(limit_s)
    report = view_from_outside(session.endpoints, limit_s, session.tls).report
    if report is None:
        raise NotReady(
            "neither HAKeeper nor any store answered in time; `logctl doctor` says what it tried"
        ) from silence
    row = report.cluster
    if row.phase == "unknown":
        worth = "what the stores say themselves; nobody remembers HAKeeper's word"
    elif row.hakeeper_age_s < 0:
        worth = "what the stores say, and HAKeeper's word of an unknown time"
    else:
        worth = f"what the stores say, and HAKeeper's word of {row.hakeeper_age_s:.0f} s ago"
    exit_codes.tell_error(
        form,
        silence,
        f"HAKeeper does not answer ({silence.reason.value}). Shown is {worth}."
        " `logctl doctor` says what is wrong.",
    )
    return report


def show_stores(form: str, report: ClusterReport) -> int:
    """Print the rows of `logctl stores`."""
    rows = [_stale(report, _store(row)) for row in report.stores]
    show_rows(form, rows, "stores", main=STORES_MAIN, if_any=STORES_IF_ANY)
    return exit_codes.UNAVAILABLE


def show_shards(form: str, report: ClusterReport, wanted: ShardFilter) -> int:
    """Print the rows of `logctl shards`."""
    rows = [_stale(report, _shard(row)) for row in remembered_shards(report, wanted)]
    show_rows(form, rows, "shards", main=SHARDS_MAIN, if_any=SHARDS_IF_ANY)
    return exit_codes.UNAVAILABLE


def show_repairs(form: str, report: ClusterReport) -> int:
    """Print the rows of `logctl repairs`."""
    rows: list[Row] = [
        {
            "operator": found.operator,
            "shard": found.shard,
            "kind": found.kind,
            "step": found.step,
            "age_ticks": found.age_ticks,
        }
        for found in report.operators
    ]
    show_rows(form, [_stale(report, row) for row in rows], "repairs")
    for flag in report.cluster.flags:
        say(f"flag: {safe_text(flag)}", err=True)
    return exit_codes.UNAVAILABLE


def _stale(report: ClusterReport, row: Row) -> Mapping[str, object]:
    age_s = report.cluster.hakeeper_age_s
    known = report.cluster.phase != "unknown" and age_s >= 0
    return {**row, "stale_s": round(age_s) if known else None}


def _store(row: StoreRow) -> Row:
    def of(code: str) -> list[str]:
        return [reason.detail for reason in row.reasons if reason.code == code]

    return {
        "store": row.store,
        "alive": row.answers,
        "ticks_since_heartbeat": row.heartbeat_age_ticks,
        "host": row.host,
        "client": row.client_address,
        "peer": row.peer_address,
        "mode": None,
        "mode_reason": None,
        "replicas": row.replicas,
        "disk_used_bytes": row.disk_used_bytes,
        "disk_free_bytes": row.disk_free_bytes,
        "directories": None,
        "failed_directories": of("directory_failed"),
        "full_directories": of("disk_full"),
    }


def _shard(row: ShardRow) -> Row:
    return {
        "shard": row.shard,
        "name": row.name,
        "state": row.state or None,
        "leader": row.leader_store or None,
        "term": row.term,
        "replicas": [
            item.store if item.role in ("", "voter") else f"{item.store} ({item.role})"
            for item in row.replicas
        ],
        "wanted": row.wanted,
        "running": sum(item.health in ("", "alive") for item in row.replicas),
        "first_lsn": row.first_lsn,
        "applied_lsn": row.applied_lsn,
        "epoch": row.epoch,
        "joint": row.joint,
        "protected": None,
        "labels": None,
    }
