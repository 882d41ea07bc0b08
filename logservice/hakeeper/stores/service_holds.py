"""Service holds: what a service has replayed of a log holds the truncation of that log.

Theory of operation. A service says with each heartbeat how far it has replayed which logs. For each
pair of a service and a log there is a hold in the log (`rsm`), one LSN above. HAKeeper does not own
the log and cannot set it: it compares what is wanted with what the store of the log's leader
reports, and its answers to that store name the differences (`orders`). The store proposes them.
This goes on until the report is as wanted, so a lost answer, another leader or an order that comes
too late is made up for within a heartbeat or two.

A hold that is missing is set at once. One that stands too low keeps more than
is wanted, which does no harm until somebody truncates. So it is moved up only while a truncation
waits for it: a busy log does not take a command for every heartbeat of every service.

The hold ends when the service is forgotten, when it no longer names the log, and never for another
reason. While HAKeeper is silent no time passes for it, and nothing ends. A pair that begins again
gets another name (`service_hold`), so to release the hold of a pair that is over is right whenever
it happens (INV-HK-SERVICE-HOLD).

The LSN may go back: a process that comes back from its checkpoint wants more than it did before. It
gets what is left. Whatever was truncated already is missing, and the answer says from where on
there are records (`first_lsn`). The same goes for a service that begins below what is truncated.
A pair that goes back begins again, under another name. An order to move the hold up that is still
under way would else take back what the service was told to be held. The hold before is released
when the other one is in force, or when the log has so many that there may be no room beside it.

A log that is unknown or being deleted is answered as `gone` and not kept: logs end without asking
services, and that must not end the service's heartbeats.

A lying store that leads a log can drop its holds and its records anyway. One that says it leads is
told what to hold, and can do nothing with it. But a store says in whose name a service speaks, so a
lying one can keep any log from being truncated. That is seen (`logctl services replayed`), loses
nothing, and ends when the store is removed.

INV-HK-SERVICE-HOLD: an order to release names no pair that is kept. Every pair is named by the
entry that began it, which began no other pair of that log, and its LSN never goes back. So whatever
orders come late, lost or twice: what a service was told is held stays while the pair is kept.

INV-HK-REPLAYED: the pairs are bounded, for each service, each identity, and in all.
"""

from __future__ import annotations

from logservice_wire.errors import Reason

from logservice import bounds
from logservice.hakeeper.commands.proposals import ReplicaReport, ServiceHeartbeat
from logservice.hakeeper.commands.replies import HoldOrder, ReplayedHold
from logservice.hakeeper.state import Replayed, ServiceState, State, StoreState
from logservice.hakeeper.stores.health import leader_report
from logservice.hakeeper.stores.holdings import holdings, touch_service
from logservice.hakeeper.stores.reports import counted
from logservice.ids import HAKEEPER_SHARD, Lsn, ShardId
from logservice.outcome import Rejected
from logservice.service_hold import hold_name


def refusal(state: State, beat: ServiceHeartbeat) -> Rejected | None:
    """Why there is no room for what the service has replayed; None when there is."""
    known = state.services.get(beat.service)
    before = len(known.replayed) if known is not None else 0
    if len(beat.replayed) <= before:
        return None
    mine = every = len(beat.replayed)
    for name, service in state.services.items():
        if name != beat.service:
            every += len(service.replayed)
            mine += len(service.replayed) if service.owner == beat.owner else 0
    for count, limit in (
        (every, bounds.HAKEEPER_REPLAYED_MAX),
        (mine, bounds.HAKEEPER_REPLAYED_PER_OWNER_MAX),
    ):
        if count > limit:
            return Rejected(Reason.BUSY, {"limit": str(limit)})
    return None


def take(state: State, service: ServiceState, beat: ServiceHeartbeat) -> tuple[ReplayedHold, ...]:
    """Take in what the service has replayed, and return what became of it."""
    if not (beat.replayed or service.replayed):
        return ()
    before = service.replayed
    after: dict[ShardId, Replayed] = {}
    answers = []
    for shard, lsn in sorted(dict(beat.replayed).items()):
        if not _lives(state, shard):
            answers.append(ReplayedHold(shard, lsn, gone=True))
            continue
        report = _report(state, shard)
        row = before.get(shard)
        if row is None or lsn < row.lsn:
            row = Replayed(lsn, state.index)
        elif row.lsn != lsn or report is None or report.applied_lsn <= lsn:
            row.lsn, row.behind_since = lsn, 0
        else:
            row.behind_since = row.behind_since or state.tick
        after[shard] = row
        answers.append(_told(state, service.service, shard, row, report))
    service.replayed = after
    touch_service(state, service, before)
    return tuple(answers)


def told(state: State, service: ServiceState) -> tuple[ReplayedHold, ...]:
    """What became of all that the service has replayed."""
    return tuple(
        _told(state, service.service, shard, row, _report(state, shard))
        if _lives(state, shard)
        else ReplayedHold(shard, row.lsn, gone=True)
        for shard, row in sorted(service.replayed.items())
    )


def orders(state: State, store: StoreState) -> tuple[HoldOrder, ...]:
    """What the store should change in the logs that it leads: what protects records first."""
    found = holdings(state)
    protecting: list[HoldOrder] = []
    releasing: list[HoldOrder] = []
    concerned = found.replaying.keys() | counted(state, store).held
    for shard in sorted(concerned & found.led.get(store.store, set())):
        report = store.replicas[shard]
        wanted = found.replaying.get(shard, ()) if _lives(state, shard) else ()
        left = dict(report.service_holds)
        missing = []
        for name in sorted(wanted):
            service = state.services[name]
            row = service.replayed[shard]
            hold = hold_name(name, row.since)
            held, target = left.pop(hold, Lsn(0)), _target(row, report)
            order = HoldOrder(shard, hold, target, service.owner)
            if not held:
                missing.append(order)
            elif held < target and report.requested_lsn >= held:
                releasing.append(order)
        protecting += missing
        if not missing or report.holds >= bounds.HOLDS_PER_OWNER_MAX:
            releasing += (HoldOrder(shard, hold) for hold in sorted(left))
    return tuple((protecting + releasing)[: bounds.HAKEEPER_HOLD_ORDERS_MAX])


def flags(state: State) -> list[str]:
    """Flags of services that are alive and replay nothing of a log that has more."""
    since = state.tick - bounds.HAKEEPER_REPLAY_STALL_TICKS
    return [
        f"service {name} replays nothing of shard {shard}, and holds it from {row.lsn + 1} on"
        for name in sorted(holdings(state).lagging)
        for shard, row in sorted(state.services[name].replayed.items())
        if 0 < row.behind_since <= since and _lives(state, shard)
    ]


def _lives(state: State, shard: ShardId) -> bool:
    known = state.shards.get(shard)
    return shard != HAKEEPER_SHARD and known is not None and not known.deleting_tick


def _report(state: State, shard: ShardId) -> ReplicaReport | None:
    found = leader_report(state, state.shards[shard])
    return found[1] if found is not None else None


def _target(row: Replayed, report: ReplicaReport) -> Lsn:
    """Where the hold belongs: nothing that is truncated can be held."""
    return Lsn(max(row.lsn, report.truncated_lsn) + 1)


def _told(
    state: State, service: str, shard: ShardId, row: Replayed, report: ReplicaReport | None
) -> ReplayedHold:
    hold = hold_name(service, row.since)
    behind = state.tick - row.behind_since if row.behind_since else 0
    if report is None:
        return ReplayedHold(shard, row.lsn, behind_ticks=behind, hold=hold)
    held = dict(report.service_holds).get(hold, Lsn(0))
    first = Lsn(report.truncated_lsn + 1)
    return ReplayedHold(shard, row.lsn, held, first, behind_ticks=behind, hold=hold)
