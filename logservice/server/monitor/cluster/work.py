"""work: what is under way in the cluster, and how far it is; pure.

Operators, what people wished, stores that give their replicas away, members that catch up, and the
way to the next version. The rows are copies of HAKeeper's view with what the stores say of lag.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from logservice import bounds
from logservice.hakeeper.answers.views import ClusterView
from logservice.same_names import copied
from logservice.server.monitor.cluster.report import Sight
from logservice.server.monitor.cluster.rows import ClusterReport, ReplicaRow, ShardRow

_CATCHES_UP_BYTES: Final = 1 << 20
"""A member that lacks less has what is under way, and no more."""


class OperatorAtWork(Struct, frozen=True, kw_only=True):
    """An operator. log: the name of the shard. lag_bytes, to_go_s: of the replica that comes, as
    `ReplicaRow` has them. cancelled: it is given up, and cleans up.
    """

    operator: int
    shard: int
    log: str
    kind: str
    cause: str
    step: str
    age_ticks: int
    replica: int
    store: str
    from_store: str
    error: str
    entries_to_go: int
    lag_bytes: int
    to_go_s: float
    cancelled: bool


class WishRow(Struct, frozen=True, kw_only=True):
    """What somebody asked for once; result: empty while it is worked for."""

    wish: int
    errand: str
    shard: int
    from_store: str
    to_store: str
    reason: str
    forced: bool
    age_ticks: int
    step: str
    result: str


class DrainRow(Struct, frozen=True, kw_only=True):
    """A store that people told not to be an ordinary one. members_left, leaders_left, leftovers: of
    one that is drained; see `hakeeper.repair.drain.Remaining`.
    """

    store: str
    mode: str
    mode_reason: str
    members_left: int
    leaders_left: int
    leftovers: int
    empty: bool
    repair_off_ticks: int
    repair_off_reason: str


class CatchingUp(Struct, frozen=True, kw_only=True):
    """A member that lacks much of its log; see `ReplicaRow`."""

    shard: int
    log: str
    replica: int
    store: str
    role: str
    lag_entries: int
    lag_bytes: int
    to_go_s: float


class VersionRow(Struct, frozen=True, kw_only=True):
    """What a store runs, the highest cluster version that its program knows, and the one that its
    directories are written for. behind: the cluster's next version waits for it.
    """

    store: str
    version: str
    highest_version: int
    used_version: int
    behind: bool


class GoneStore(Struct, frozen=True, kw_only=True):
    """A store that was forgotten."""

    store: str
    lost: bool
    age_ticks: int


class Work(Struct, frozen=True, kw_only=True):
    """See the module's text. Every list has its first ADMIN_WORK_SHOWN rows; behind: how many
    members lack something. repair_off_ticks: for how long nothing is repaired. known: whether
    HAKeeper was ever heard.
    """

    known: bool
    tick: int
    operators: tuple[OperatorAtWork, ...] = ()
    wishes: tuple[WishRow, ...] = ()
    drains: tuple[DrainRow, ...] = ()
    catching_up: tuple[CatchingUp, ...] = ()
    behind: int = 0
    versions: tuple[VersionRow, ...] = ()
    cluster_version: int = 0
    next_version: int = 0
    gone_stores: tuple[GoneStore, ...] = ()
    repair_off_ticks: int = 0
    repair_off_reason: str = ""
    settings: dict[str, str | int] = {}


def work(sight: Sight) -> Work:
    """What is under way."""
    report, view = sight.report, sight.view
    behind = sorted(_behind(report), key=lambda one: one.lag_entries, reverse=True)
    shown = tuple(behind[: bounds.ADMIN_WORK_SHOWN])
    if view is None:
        return Work(known=False, tick=0, catching_up=shown, behind=len(behind))
    return Work(
        known=True,
        tick=view.tick,
        operators=tuple(_operators(report, view)),
        wishes=tuple(
            copied(WishRow, one, wish=one.wish_id, shard=one.shard_id)
            for one in sorted(view.wishes, key=lambda one: (bool(one.result), one.age_ticks))[
                : bounds.ADMIN_WORK_SHOWN
            ]
        ),
        drains=tuple(
            copied(DrainRow, one, store=one.store_id)
            for one in view.stores
            if one.mode not in ("", "open") or one.repair_off_ticks
        )[: bounds.ADMIN_WORK_SHOWN],
        catching_up=shown,
        behind=len(behind),
        versions=tuple(_versions(sight, view))[: bounds.ADMIN_WORK_SHOWN],
        cluster_version=view.cluster_version,
        next_version=view.next_version,
        gone_stores=tuple(
            copied(GoneStore, one, store=one.store_id)
            for one in view.gone_stores[: bounds.ADMIN_WORK_SHOWN]
        ),
        repair_off_ticks=view.repair_off_ticks,
        repair_off_reason=view.repair_off_reason,
        settings={
            name: getattr(view.settings, name) for name in view.settings.__dataclass_fields__
        },
    )


def _operators(report: ClusterReport, view: ClusterView) -> Iterator[OperatorAtWork]:
    about = {one.shard_id for one in view.operators}
    rows = {one.shard: one for one in report.shards if one.shard in about}
    for one in view.operators[: bounds.ADMIN_WORK_SHOWN]:
        row = rows.get(one.shard_id)
        comes = _member(row, one.replica_id)
        yield copied(
            OperatorAtWork,
            one,
            operator=one.operator_id,
            shard=one.shard_id,
            log=row.name if row is not None else "",
            replica=one.replica_id,
            store=one.store_id,
            lag_bytes=comes.lag_bytes if comes is not None else -1,
            to_go_s=comes.to_go_s if comes is not None else -1.0,
        )


def _member(row: ShardRow | None, replica: int) -> ReplicaRow | None:
    members = row.replicas if row is not None else ()
    return next((one for one in members if one.replica == replica), None)


def _behind(report: ClusterReport) -> Iterator[CatchingUp]:
    for shard in report.shards:
        if shard.lag_entries > 0:
            for one in shard.replicas:
                if one.lag_bytes >= _CATCHES_UP_BYTES:
                    yield copied(CatchingUp, one, shard=shard.shard, log=shard.name)


def _versions(sight: Sight, view: ClusterView) -> Iterator[VersionRow]:
    for one in view.stores:
        status = sight.statuses.get(one.store_id)
        yield copied(
            VersionRow,
            one,
            store=one.store_id,
            version=status.version if status is not None else "",
            behind=one.store_id in view.holding_back,
        )
