"""without_hakeeper: what `stores`, `shards` and `repairs` show while HAKeeper does not answer.

HAKeeper is asked first, for a part of the time only. If it is silent, the stores are asked what
they know: what they say of themselves, combined with the newest view of HAKeeper that one of them
remembers. The rows have the usual fields and `stale_s`, which says how old HAKeeper's part is, and
is null if no store can tell. The command says so on stderr and ends with `UNAVAILABLE`, so that no
script takes such rows for HAKeeper's answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from logservice_wire.errors import LogServiceError, NotReady, Reason
from logservice_wire.v1 import hakeeper_pb2

from logservice.cli.ctl.client_session import Session
from logservice.cli.shell import exit_codes
from logservice.cli.shell.output import Row, say, show_rows
from logservice.safe_text import safe_text
from logservice.server.monitor.cluster.rows import ClusterReport, ShardRow, StoreRow

_SHARE: Final = 0.4
"""The share of the time-out that HAKeeper's own answer gets; the rest is for asking the stores."""

_SILENT: Final = frozenset(
    {Reason.NOT_READY, Reason.DEADLINE, Reason.UNKNOWN_OUTCOME, Reason.NOT_LEADER, Reason.BUSY}
)


def state_of(session: Session) -> hakeeper_pb2.ClusterState | LogServiceError:
    """HAKeeper's answer, or why there is none. Other errors (access, arguments) are raised."""
    limit_s = session.timeout_s * _SHARE
    try:
        return session.run(lambda client: client.hakeeper.cluster_state(timeout=limit_s))
    except LogServiceError as error:
        if error.reason not in _SILENT:
            raise
        return error


def remembered(session: Session, silence: LogServiceError, form: str) -> ClusterReport:
    """What the stores know. It first says on stderr what that is worth. Raises NotReady."""
    from logservice.cli.ctl.outside_view import view_from_outside

    limit_s = session.timeout_s * (1 - _SHARE)
    report = view_from_outside(session.endpoints, limit_s, session.tls).report
    if report is None:
        raise NotReady(
            "neither HAKeeper nor any store answers; `logctl doctor` says what it tried"
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
    show_rows(form, [_stale(report, _store(row)) for row in report.stores], "stores")
    return exit_codes.UNAVAILABLE


def show_shards(form: str, report: ClusterReport, shard_id: int | None = None) -> int:
    """Print the rows of `logctl shards`."""
    shown = [row for row in report.shards if shard_id in (None, row.shard)]
    show_rows(form, [_stale(report, _shard(row)) for row in shown], "shards")
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
    }
