"""Heartbeats: how reports become state.

Theory of operation. A heartbeat is accepted in the order of its process. `sequence` grows within a
`boot_id`, and a boot id never counts again after another one followed it, so that a late heartbeat
cannot take the view back. A process that is refused for that reason learns which boot id of which
data directories holds the store. If a late heartbeat of a process that was never seen came in
between, the living process has to come back under a new boot id. Reports are differences to an
earlier heartbeat. When that heartbeat is not the last one applied here, the reports are ignored and
the answer asks for a full report. The other way round it is the same: the answer carries the list
of stores and the access list only when they have changed, and says whether the directory has.

A shard's membership only ever moves to a higher change epoch, by reports that count (`belief`).
Changes are compare-and-swap on the epoch, so there is one history, and a higher epoch is later in
it. Two different memberships of one epoch are a bug or a broken disk somewhere: HAKeeper keeps the
known one, raises a flag and goes on (in MatrixOne it panics on every replica). A shard that
HAKeeper did not create is never touched; reports of it are only shown.

INV-HK-LOST-TRACK: a replica that may have voted or acknowledged is never begun again under its id.
Normally HAKeeper knows from reports which replicas have run (`started`). But a store may have begun
a replica as it was told, and may have lost it before its next heartbeat, together with every trace
of it. A process that found an unattributed loss in a data directory says so. From its first
heartbeat on every member that is bound to that directory counts as one that has run. Commands that
were queued for the store before are dropped, because they were planned without that knowledge. This
process cannot have lost members that come later. A member that really never ran is replaced under a
new id, which is the price.

INV-HK-GONE-BACK: a data directory that was put back from an older copy of itself is noticed, and
the replicas bound to it are replaced. The directory keeps its incarnation, and nothing inside shows
what happened, but it has forgotten votes and acknowledgements. What a replica reported as applied
was durable in its directory, so a later process whose log ends before that has lost entries. The
evidence is kept, and every answer carries it until the store has acted on it. The store looks at
its own log before it believes the evidence, because a late heartbeat of an earlier process reports
less, too. A loss that no report shows cannot be noticed: a copy that is put back within a heartbeat
of being made, or copies put back on all stores at once.

A heartbeat is checked as a whole before anything is changed, so a refused one changes nothing.
"""

from __future__ import annotations

from collections.abc import Set

from logservice_wire.errors import Reason

from logservice import bounds
from logservice.hakeeper import feed
from logservice.hakeeper.commands import replies
from logservice.hakeeper.commands.cluster_events import EventKind
from logservice.hakeeper.commands.proposals import (
    AckCommands,
    ReplicaReport,
    StoreHeartbeat,
)
from logservice.hakeeper.marks import mark, mark_stores
from logservice.hakeeper.state import ShardState, State, StoreState
from logservice.hakeeper.stores import (
    access,
    delivery,
    enrolment,
    limits,
    quotas,
    service_holds,
    services,
)
from logservice.hakeeper.stores.belief import confirmed, speaks
from logservice.hakeeper.stores.drives import hear
from logservice.hakeeper.stores.health import silent
from logservice.hakeeper.stores.holdings import touch, touch_store
from logservice.hakeeper.stores.reports import counted, replace_reports, share, size_of
from logservice.hakeeper.tombstones import buried
from logservice.ids import NO_REPLICA, Incarnation, Index, ReplicaId, ShardId
from logservice.membership import MembershipCorrupt, decoded
from logservice.outcome import Applied, Outcome, Rejected


def apply_store(state: State, beat: StoreHeartbeat) -> Outcome:
    """Take in a store's heartbeat; the outcome carries its commands (`replies.HeartbeatReply`).

    Rejected: INVALID_ARGUMENT for contradictory reports, BUSY when the table of stores is full,
    STALE_EPOCH for a heartbeat of an earlier process, PERMISSION_DENIED for a store that may not
    join, or not with what it brings (`enrolment`).
    """
    problem = _problem(state, beat)
    if problem:
        return Rejected(Reason.INVALID_ARGUMENT, {"field": problem})
    refused = enrolment.refusal(state, beat)
    if refused is not None:
        return refused
    store = state.stores.get(beat.store)
    if store is None and len(state.stores) >= bounds.HAKEEPER_STORES_MAX:
        return Rejected(Reason.BUSY, {"limit": str(bounds.HAKEEPER_STORES_MAX)})
    if store is not None and beat.boot_id in store.old_boots:
        incarnations = ",".join(str(one.incarnation) for one in store.directories)
        holder = {"holder": str(store.boot_id), "incarnations": incarnations}
        return Rejected(Reason.STALE_EPOCH, holder)
    same_boot = store is not None and store.boot_id == beat.boot_id
    if store is not None and same_boot and beat.sequence <= store.sequence:
        return _reply(state, store, beat, need_full=False)
    if beat.base and (store is None or not same_boot or beat.base != store.sequence):
        if store is not None and same_boot:
            _mark_alive(state, store)
            delivery.acknowledge(state, store, beat.results)
        return _reply(state, store, beat, need_full=True)
    forgotten = {} if same_boot else _forgotten(store, beat)
    store = _identify(state, store, beat)
    if not same_boot and beat.unattributed_loss:
        _distrust(state, store, frozenset(beat.unattributed_loss))
    _mark_alive(state, store)
    _take_reports(state, store, beat)
    store.forgotten = {
        shard: lost
        for shard, lost in (store.forgotten | forgotten).items()
        if _lacks(store.replicas.get(shard), lost)
    }
    delivery.acknowledge(state, store, beat.results)
    return _reply(state, store, beat, need_full=False)


def _forgotten(
    before: StoreState | None, beat: StoreHeartbeat
) -> dict[ShardId, tuple[ReplicaId, Index]]:
    """INV-HK-GONE-BACK: per shard, the replica whose log ends before what it had applied, and the
    index that it had applied.
    """
    found: dict[ShardId, tuple[ReplicaId, Index]] = {}
    if before is None:
        return found
    for report in beat.replicas:
        known = before.replicas.get(report.shard)
        if known is not None and known.incarnation == report.incarnation:
            lost = (known.replica, known.applied_index)
            if _lacks(report, lost):
                found[report.shard] = lost
    return found


def _lacks(report: ReplicaReport | None, lost: tuple[ReplicaId, Index]) -> bool:
    """Whether the replica runs and lacks some of the entries through that index."""
    replica, through = lost
    return (
        report is not None
        and report.replica == replica
        and not report.halted
        and report.last_index < through
    )


def apply_ack(state: State, ack: AckCommands) -> Outcome:
    """Take in acknowledgements outside of a heartbeat.

    Rejected: INVALID_ARGUMENT for an unknown target.
    """
    for store in state.sorted_stores():
        if store.store == ack.target:
            delivery.acknowledge(state, store, ack.results)
            return Applied()
    service = state.services.get(ack.target)
    if service is None:
        return Rejected(Reason.INVALID_ARGUMENT, {"field": "target"})
    acked = {result.id for result in ack.results}
    service.queue = [item for item in service.queue if item.id not in acked]
    return Applied()


def _problem(state: State, beat: StoreHeartbeat) -> str:
    """Which field contradicts itself; empty if none does."""
    if len({report.shard for report in beat.replicas}) != len(beat.replicas):
        return "replicas"
    if services.text_bytes(beat.labels) > bounds.HAKEEPER_SERVICE_BYTES_MAX:
        return "labels"
    if beat.replicas and _reported_bytes(state, beat) > bounds.HAKEEPER_STORE_BYTES_MAX:
        return "replicas"
    incarnations = {directory.incarnation for directory in beat.directories}
    if len(incarnations) != len(beat.directories):
        return "directories"
    if any(report.incarnation not in incarnations for report in beat.replicas):
        return "incarnation"
    for report in beat.replicas:
        shard = state.shards.get(report.shard)
        known = shard.membership if shard is not None else b""
        if report.membership == known or not report.membership:
            continue
        try:
            if decoded(report.membership).change_epoch != report.epoch:
                return "epoch"
        except MembershipCorrupt:
            return "membership"
    return ""


def _reported_bytes(state: State, beat: StoreHeartbeat) -> int:
    """About how many bytes the store's reports take in the state with this heartbeat."""
    size = sum(map(size_of, beat.replicas))
    store = state.stores.get(beat.store) if beat.base else None
    if store is None:
        return size
    before = store.replicas
    size -= sum(size_of(before[one.shard]) for one in beat.replicas if one.shard in before)
    return counted(state, store).size + size


def _identify(state: State, store: StoreState | None, beat: StoreHeartbeat) -> StoreState:
    """The store's record, with the process, data directories and addresses of this heartbeat."""
    if store is None:
        store = StoreState(
            beat.store,
            "",
            "",
            "",
            beat.directories,
            beat.boot_id,
            0,
            first_tick=state.tick,
            last_tick=state.tick,
            live_since=state.tick,
            directories_tick=state.tick,
        )
        state.stores[beat.store] = store
        mark_stores(state)
        _not_steady(state, store)
        touch_store(state, store.store)
        state.dirty = True
        feed.tell(state, EventKind.STORE_JOINED, store=beat.store, text=beat.host)
    if store.boot_id != beat.boot_id:
        store.old_boots = [*store.old_boots, store.boot_id][-bounds.HAKEEPER_BOOTS_REMEMBERED :]
        store.boot_id = beat.boot_id
        _not_steady(state, store)
        state.dirty = True
        feed.tell(state, EventKind.STORE_RESTARTED, store=beat.store)
    _take_directories(state, store, beat)
    store.sequence = beat.sequence
    store.host = beat.host
    if (store.peer_address, store.client_address) != (beat.peer_address, beat.client_address):
        mark_stores(state)
    store.peer_address, store.client_address = beat.peer_address, beat.client_address
    if store.labels != beat.labels:
        store.labels = dict(sorted(beat.labels.items()))
        touch_store(state, store.store)
        state.dirty = state.dirty or state.cluster_version >= 2
    if state.cluster_version >= 2:
        store.access_version = beat.access_version
    return store


def _take_directories(state: State, store: StoreState, beat: StoreHeartbeat) -> None:
    before, after = (
        {one.incarnation: (bool(one.failed), one.full) for one in directories}
        for directories in (store.directories, beat.directories)
    )
    if before.keys() != after.keys():
        mark_stores(state)
    if before.keys() - after.keys():
        # What is queued for the store may have been meant for a directory that is gone.
        store.directories_tick = state.tick
        store.queue = []
        store.stored = ()
    store.directories = beat.directories
    if state.cluster_version >= 2:
        store.failed_since = {
            one.incarnation: store.failed_since.get(one.incarnation, state.tick)
            for one in beat.directories
            if one.failed
        }
    if before != after:
        touch_store(state, store.store)
        state.dirty = True


def _distrust(state: State, store: StoreState, unattributed_loss: Set[Incarnation]) -> None:
    """INV-HK-LOST-TRACK. The same heartbeat reports which replicas run or are stored there."""
    store.queue = []
    state.dirty = True
    for shard in state.sorted_shards():
        bound = {
            member.replica_id
            for member in (shard.members.members if shard.initial else ())
            if member.store_id == store.store and member.incarnation in unattributed_loss
        }
        shard.started = sorted({*shard.started, *bound})


def _mark_alive(state: State, store: StoreState) -> None:
    if store.expired or silent(state, store.last_tick):
        store.expired = False
        store.live_since = state.tick
        state.dirty = True
        feed.tell(state, EventKind.STORE_UP, store=store.store)
    if store.last_tick + bounds.HAKEEPER_GAP_TICKS < state.tick:
        _not_steady(state, store)
    store.last_tick = state.tick


def _not_steady(state: State, store: StoreState) -> None:
    if state.cluster_version >= 2:
        store.steady_since = state.tick


def _take_reports(state: State, store: StoreState, beat: StoreHeartbeat) -> None:
    """Replace (base 0) or update what the store runs, and learn from it about its shards."""
    others: set[ShardId] = set()
    if beat.stored is not None and beat.stored != store.stored:
        others = {shard for shard, _ in (*store.stored, *beat.stored)}
        store.stored = beat.stored
        state.dirty = True
    if beat.stuck != store.stuck:
        store.stuck = beat.stuck
        since = store.stuck_since
        store.stuck_since = {one: since.get(one, state.tick) for _, one in beat.stuck}
        state.dirty = True
    before = store.replicas
    after: dict[ShardId, ReplicaReport] = dict(before) if beat.base else {}
    for shard_id in beat.gone:
        after.pop(shard_id, None)
    after.update((report.shard, report) for report in beat.replicas)
    changed = (*beat.gone, *(report.shard for report in beat.replicas))
    replace_reports(state, store, after, changed if beat.base else None)
    if len(after) != len(before):
        state.dirty = True
    if not beat.base:
        others |= before.keys() - after.keys()
    others.update(beat.gone)
    for report in beat.replicas:
        known = before.get(report.shard)
        if _changed(known, report):
            state.dirty = True
            others.add(report.shard)
        elif before[report.shard].incarnation != report.incarnation:
            others.add(report.shard)
        _tell(state, store, known, report)
        shard = state.shards.get(report.shard)
        if shard is not None and report.closed_index and not (known and known.closed_index):
            mark(state, shard)
        if shard is not None and shard.initial:
            _learn(state, shard, store, report)
            share(report, shard)
    for shard_id in sorted(others):
        touch(state, shard_id, (store.store,))
    hear(state, others | {report.shard for report in beat.replicas if report.leads})


def _tell(
    state: State, store: StoreState, before: ReplicaReport | None, after: ReplicaReport
) -> None:
    """Tell the watchers what a report says that the state keeps nowhere else."""
    if after.leads and before is not None and before.truncated_lsn < after.truncated_lsn:
        feed.truncated(state, after.shard, after.truncated_lsn)
    halted = before.halted if before is not None and before.replica == after.replica else ""
    if bool(halted) == bool(after.halted):
        return
    kind = EventKind.REPLICA_HALTED if after.halted else EventKind.REPLICA_RECOVERED
    feed.tell(
        state,
        kind,
        shard=after.shard,
        replica=after.replica,
        store=store.store,
        text=after.halted,
    )


def learn_again(state: State, shard: ShardState) -> None:
    """Learn from reports that were not believed before, and may be now: other stores fell silent,
    or an operator began.
    """
    for member in shard.members.members:
        store = state.stores.get(member.store_id)
        report = store.replicas.get(shard.shard) if store is not None else None
        if store is not None and report is not None and report.epoch > shard.members.change_epoch:
            _learn(state, shard, store, report)


def _changed(before: ReplicaReport | None, after: ReplicaReport) -> bool:
    """Whether anything changed that the checkers decide on, except positions in the log."""
    return before is None or (
        before.replica != after.replica
        or before.epoch != after.epoch
        or before.leads != after.leads
        or before.halted != after.halted
        or before.repairing != after.repairing
    )


def _learn(state: State, shard: ShardState, store: StoreState, report: ReplicaReport) -> None:
    """Take a report into what is known of the shard, as far as it is believed (INV-HK-BELIEF)."""
    if not speaks(state, shard, store, report):
        return
    members = shard.members
    if report.membership and report.membership != shard.membership:
        if report.epoch > members.change_epoch:
            if not confirmed(state, shard, report):
                return
            shard.membership = report.membership
            mark(state, shard)
            shard.disagreement = ""
            members = shard.members
            text = feed.members_text(members)
            feed.tell(state, EventKind.MEMBERSHIP, shard=shard.shard, text=text)
            shard.started = [one for one in shard.started if members.contains(one)]
            shard.lost = [one for one in shard.lost if members.contains(one)]
            touch(state, shard.shard, (store.store,))
            state.dirty = True
        elif report.epoch == members.change_epoch:
            shard.disagreement = f"replica {report.replica} reports another membership"
            touch(state, shard.shard)
    if not members.contains(report.replica):
        return
    if report.replica not in shard.started:
        shard.started = sorted([*shard.started, report.replica])
    if report.leader != NO_REPLICA and report.term >= shard.leader_term:
        if report.leader != shard.leader:
            leader = members.member(report.leader)
            feed.tell(
                state,
                EventKind.LEADER,
                shard=shard.shard,
                replica=report.leader,
                store=leader.store_id if leader is not None else "",
                text=f"term {report.term}",
            )
        shard.leader, shard.leader_term = report.leader, report.term


def _reply(
    state: State, store: StoreState | None, beat: StoreHeartbeat, *, need_full: bool
) -> Outcome:
    reply = replies.HeartbeatReply(
        state.phase,
        state.tick,
        need_full=need_full,
        commands=delivery.due(store.queue) if store is not None else (),
        forgotten=tuple(
            replies.Forgotten(shard, *lost) for shard, lost in sorted(store.forgotten.items())
        )
        if store is not None
        else (),
        directory=tuple(
            replies.DirectoryEntry(
                known.store,
                known.peer_address,
                known.client_address,
                tuple(directory.incarnation for directory in known.directories),
            )
            for known in state.sorted_stores()
        )
        if not beat.stores_index or beat.stores_index != state.stores_index
        else (),
        hakeeper=state.hakeeper_membership(),
        access_version=state.access_version,
        access=None if beat.access_version == state.access_version else access.grants(state),
        cluster_version=state.cluster_version,
        deleted=buried(state, [*store.replicas, *(shard for shard, _ in store.stored)])
        if store is not None
        else (),
        index=state.index,
        directory_index=max(state.directory_index, state.directory_lost),
        stores_index=state.stores_index,
        limits_version=state.limits_version,
        limits=limits.news(state, beat.limits_version),
        holds=service_holds.orders(state, store)
        if store is not None and state.cluster_version >= 2
        else (),
        catch_up_bytes_per_s=state.catch_up_bytes_per_s,
        tail_read_bytes_per_s=state.tail_read_bytes_per_s,
        catch_up_read_bytes_per_s=state.catch_up_read_bytes_per_s,
        denials=() if beat.access_version == state.access_version else access.denials(state),
        quotas_version=state.quotas_version,
        quotas=quotas.news(state, beat.quotas_version),
    )
    return Applied(data=replies.encode(reply))
