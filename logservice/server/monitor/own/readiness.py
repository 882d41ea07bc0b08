"""readiness: whether clients should be sent to a store, and if not, why.

A store is ready when all of this holds: it serves; it belongs to the cluster; it is known what it
should run; every replica here runs, applies what is committed, and knows a leader that it can
reach; the disks work and are below the high-water mark; truncation is not stalled; no difference
between replicas is undecided.
Each condition that fails is a reason of its own, with the shard it concerns and words for a person.
All of this is a pure function of what the reporter found.

"Known what it should run": until HAKeeper has answered this process once, no client can use a store
that has nothing, or that came back with another data directory than shard 0 was begun with. A store
that has replicas serves them, whether HAKeeper answers or not.

"A leader it can reach": a follower that hears nothing for an election timeout forgets its leader,
and a leader that hears no majority for as long steps down. So a known leader is a reachable one.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

from logservice import bounds
from logservice.server.monitor.own.status import DirectoryStatus, Reason, ReplicaStatus


class Code(enum.StrEnum):
    """Why a store is not ready; the values are labels of a metric."""

    STARTING = "starting"
    STOPPING = "stopping"
    NO_REPLY = "no_reply"
    """The event loop did not answer the admin port in time."""
    SHARD_0_REFUSED = "shard_0_refused"
    """HAKeeper was begun with another data directory of this store, and has not answered since."""
    NO_HAKEEPER = "no_hakeeper"
    """Nothing runs here, and HAKeeper has not said yet what should run."""
    TURNED_AWAY = "turned_away"
    """HAKeeper takes no heartbeat of this store: it was forgotten, or not admitted yet."""
    NO_LEADER = "no_leader"
    HALTED = "halted"
    DIVERGED = "diverged"
    """Replicas differ, and it is not known yet which of them is right."""
    DISK_FULL = "disk_full"
    DIRECTORY_FAILED = "directory_failed"
    TRUNCATION_STALLED = "truncation_stalled"
    STUCK = "stuck"
    """A replica has entries to apply and applies none."""


def reasons(
    phase: str,
    replicas: Iterable[ReplicaStatus],
    directories: Iterable[DirectoryStatus],
    undecided: Iterable[int] = (),
    own: Iterable[Reason] = (),
) -> tuple[Reason, ...]:
    """All reasons not to be ready; none when ready. There are at most READY_REASONS_MAX, those of
    the whole store first.

    `undecided`: shards led here whose replicas differ, without a majority that shows which is
    right. `own`: further reasons that concern the whole store.
    """
    found: list[Reason] = []
    if phase == "starting":
        found.append(Reason(code=Code.STARTING, detail="recovery has not finished"))
    elif phase == "stopping":
        found.append(Reason(code=Code.STOPPING, detail="leaderships are handed away"))
    found += own
    for directory in directories:
        reason = _of_directory(directory)
        if reason is not None:
            found.append(reason)
    found += [
        Reason(code=Code.DIVERGED, detail="replicas differ, and too few answer", shard=shard)
        for shard in undecided
    ]
    for replica in replicas:
        reason = _of_replica(replica)
        if reason is not None:
            found.append(reason)
            if len(found) >= bounds.READY_REASONS_MAX:
                break
    return tuple(found[: bounds.READY_REASONS_MAX])


def without_hakeeper(refused: str, waiting: str, *, empty: bool) -> tuple[Reason, ...]:
    """The reasons of a store that HAKeeper has not answered since the store's process began.

    `refused`: why shard 0 does not start here. `waiting`: what the first start of shard 0 waits
    for, if anything. `empty`: whether no replica runs here.
    """
    if refused:
        return (Reason(code=Code.SHARD_0_REFUSED, detail=refused),)
    if empty:
        detail = waiting or "HAKeeper has not answered since the store started"
        return (Reason(code=Code.NO_HAKEEPER, detail=detail),)
    return ()


def turned_away(why: str) -> tuple[Reason, ...]:
    """The reason of a store that HAKeeper does not take as one of the cluster's. `why`: its words;
    "" for a store that it takes.
    """
    if not why:
        return ()
    return (Reason(code=Code.TURNED_AWAY, detail=f"HAKeeper turned this store away: {why}"),)


def _of_directory(directory: DirectoryStatus) -> Reason | None:
    if directory.failed:
        return Reason(code=Code.DIRECTORY_FAILED, detail=f"{directory.path}: {directory.failed}")
    if directory.logdb.get("disk_full"):
        free = int(directory.logdb.get("free_bytes", 0))
        return Reason(code=Code.DISK_FULL, detail=f"{directory.path}: {free} bytes free")
    return None


def _of_replica(replica: ReplicaStatus) -> Reason | None:
    if replica.halted:
        return Reason(code=Code.HALTED, detail=replica.halted, shard=replica.shard)
    if replica.stuck:
        return Reason(
            code=Code.STUCK,
            detail=f"replica {replica.replica} applies nothing, at entry {replica.applied_index}",
            shard=replica.shard,
        )
    if replica.leader == 0:
        return Reason(
            code=Code.NO_LEADER,
            detail=f"replica {replica.replica} knows no leader in term {replica.term}",
            shard=replica.shard,
        )
    if replica.stalled:
        return Reason(
            code=Code.TRUNCATION_STALLED,
            detail=f"{replica.stalled_bytes} bytes could go: {replica.stalled}",
            shard=replica.shard,
        )
    return None
