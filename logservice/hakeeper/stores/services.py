"""Services: the database's own processes (TN, CN, proxy) that want to be seen and get commands.

Theory of operation. A service exists as long as it sends heartbeats. One that is silent for longer
than HAKEEPER_SERVICE_TIMEOUT_TICKS is forgotten, with its commands. A service belongs to the client
identity that sent its first heartbeat, as named by the store that authenticated it. No other
identity can send heartbeats for the service while it lives.

One process speaks for a service: the newest one that was heard. A heartbeat is taken in the order
of its process (`boot_id`, `sequence`), because what it says of logs was answered (`service_holds`).
A late one of that process changes nothing. A process that another one followed is refused, so of
two under one name the older one ends. A process that says no boot id is always taken.

A service works until a verb tells it to drain. From then on it is draining, or drained as long as
its heartbeats say so. Started again it goes on draining: the verb is about the service.

A command for a service waits in its queue until a heartbeat acknowledges it (`orders`,
`delivery`). It is handled at least once, in order with the others.

INV-HK-SERVICES: what services take in the state is bounded, in all and for each identity, so that
an identity that may register them can neither make shard 0's snapshot large nor crowd out the
services of others.
"""

from __future__ import annotations

from collections.abc import Mapping

from logservice_wire.errors import Reason

from logservice import bounds
from logservice.hakeeper import feed
from logservice.hakeeper.commands import replies
from logservice.hakeeper.commands.cluster_events import EventKind
from logservice.hakeeper.commands.proposals import ServiceHeartbeat
from logservice.hakeeper.commands.verbs import SetWorkState, WorkState
from logservice.hakeeper.state import ServiceState, State
from logservice.hakeeper.stores import delivery, service_holds, tn_shards
from logservice.hakeeper.stores.holdings import forget_service
from logservice.outcome import Applied, Outcome, Rejected


def apply_service(state: State, beat: ServiceHeartbeat) -> Outcome:
    """Take in a service's heartbeat; the outcome carries its commands.

    Rejected: TOO_LARGE for a service that takes more than HAKEEPER_SERVICE_BYTES_MAX,
    PERMISSION_DENIED for a service of another identity, STALE_EPOCH for a process that another one
    followed, BUSY when there are too many services, in
    all or of this identity.
    """
    size = text_bytes({beat.service: beat.kind, **beat.labels}) + len(beat.address.encode())
    if size > bounds.HAKEEPER_SERVICE_BYTES_MAX:
        limit = str(bounds.HAKEEPER_SERVICE_BYTES_MAX)
        return Rejected(Reason.TOO_LARGE, {"name": "service", "limit": limit, "value": str(size)})
    service = state.services.get(beat.service)
    if service is not None and service.owner != beat.owner:
        if not _silent(state, service):
            return Rejected(Reason.PERMISSION_DENIED, {"service": beat.service})
        service = None
    if service is not None and beat.boot_id:
        if beat.boot_id in service.old_boots:
            return Rejected(Reason.STALE_EPOCH, {"holder": str(service.boot_id)})
        if beat.boot_id == service.boot_id and beat.sequence <= service.sequence:
            return _answer(state, service, service_holds.told(state, service))
    refused = _no_room(state, beat) if service is None else None
    refused = refused or service_holds.refusal(state, beat)
    if refused is not None:
        return refused
    if service is None:
        _remove(state, beat.service)
        service = ServiceState(
            beat.service, beat.kind, beat.address, {}, state.tick, owner=beat.owner
        )
        state.services[beat.service] = service
        feed.tell(state, EventKind.SERVICE_JOINED, store=beat.service, text=beat.kind)
    service.kind, service.address = beat.kind, beat.address
    service.labels = dict(sorted(beat.labels.items()))
    service.last_tick = state.tick
    if service.boot_id and beat.boot_id != service.boot_id:
        boots = [*service.old_boots, service.boot_id]
        service.old_boots = boots[-bounds.HAKEEPER_BOOTS_REMEMBERED :]
    service.boot_id, service.sequence = beat.boot_id, beat.sequence
    _drain(state, service, beat.drained)
    tn_shards.take(state, service, beat)
    acked = set(beat.acked)
    service.queue = [item for item in service.queue if item.id not in acked]
    return _answer(state, service, service_holds.take(state, service, beat))


def _answer(
    state: State, service: ServiceState, replayed: tuple[replies.ReplayedHold, ...]
) -> Outcome:
    reply = replies.HeartbeatReply(
        state.phase,
        state.tick,
        commands=delivery.due(service.queue),
        cluster_version=state.cluster_version,
        replayed=replayed,
        work_state=service.work_state.value if state.cluster_version >= 2 else "",
        serve=tn_shards.serve(state, service),
    )
    return Applied(data=replies.encode(reply))


def apply_work_state(state: State, verb: SetWorkState) -> Outcome:
    """Tell a service to drain, or to work again.

    Rejected: INVALID_ARGUMENT for an unknown service, or when the service alone can say it.
    """
    service = state.services.get(verb.service)
    if service is None:
        why = f"no service is called {verb.service}"
        return Rejected(Reason.INVALID_ARGUMENT, {"field": "service_id", "why": why})
    if verb.work_state is WorkState.DRAINED:
        why = "only the service itself says that it is drained"
        return Rejected(Reason.INVALID_ARGUMENT, {"field": "work_state", "why": why})
    drains = service.work_state is not WorkState.WORKING
    if drains == (verb.work_state is WorkState.DRAINING):
        return Applied()
    service.work_state = verb.work_state
    feed.tell(state, EventKind.VERB, store=service.service, text=verb.work_state.value)
    return Applied()


def expires_in_ticks(state: State, service: ServiceState) -> int:
    """After how many ticks without a heartbeat the service is forgotten."""
    return max(0, service.last_tick + bounds.HAKEEPER_SERVICE_TIMEOUT_TICKS + 1 - state.tick)


def expire(state: State) -> None:
    """Forget services that have been silent for too long. It looks once a second."""
    if state.tick % bounds.HAKEEPER_TICKS_PER_S:
        return
    gone = [name for name, service in state.services.items() if _silent(state, service)]
    for name in sorted(gone):
        kind = state.services[name].kind
        _remove(state, name)
        feed.tell(state, EventKind.SERVICE_GONE, store=name, text=kind)


def text_bytes(labels: Mapping[str, str]) -> int:
    """The bytes of all keys and values."""
    return sum(len(key.encode()) + len(value.encode()) for key, value in labels.items())


def _drain(state: State, service: ServiceState, drained: bool) -> None:
    if service.work_state is WorkState.WORKING:
        return
    before = service.work_state
    service.work_state = WorkState.DRAINED if drained else WorkState.DRAINING
    if drained and before is not WorkState.DRAINED:
        feed.tell(state, EventKind.SERVICE_DRAINED, store=service.service, text=service.kind)


def _remove(state: State, name: str) -> None:
    service = state.services.pop(name, None)
    if service is not None:
        forget_service(state, service)


def _silent(state: State, service: ServiceState) -> bool:
    return service.last_tick + bounds.HAKEEPER_SERVICE_TIMEOUT_TICKS < state.tick


def _no_room(state: State, beat: ServiceHeartbeat) -> Rejected | None:
    others = [one for name, one in state.services.items() if name != beat.service]
    if len(others) >= bounds.HAKEEPER_SERVICES_MAX:
        return Rejected(Reason.BUSY, {"limit": str(bounds.HAKEEPER_SERVICES_MAX)})
    mine = sum(1 for one in others if one.owner == beat.owner)
    if mine >= bounds.HAKEEPER_SERVICES_PER_OWNER_MAX:
        return Rejected(Reason.BUSY, {"limit": str(bounds.HAKEEPER_SERVICES_PER_OWNER_MAX)})
    return None
