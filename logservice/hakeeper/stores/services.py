"""Services: the database's own processes (TN, CN, proxy) that want to be seen and get commands.

Theory of operation. A service exists as long as it sends heartbeats. One that is silent for longer
than HAKEEPER_SERVICE_TIMEOUT_TICKS is forgotten, with its commands. A service belongs to the client
identity that sent its first heartbeat, as named by the store that authenticated it. No other
identity can send heartbeats for the service while it lives.

INV-HK-SERVICES: what services take in the state is bounded, in all and for each identity, so that
an identity that may register them can neither make shard 0's snapshot large nor crowd out the
services of others.
"""

from __future__ import annotations

from collections.abc import Mapping

from logservice_wire.errors import Reason

from logservice import bounds
from logservice.hakeeper.commands import replies
from logservice.hakeeper.commands.proposals import ServiceHeartbeat
from logservice.hakeeper.state import ServiceState, State
from logservice.hakeeper.stores import delivery
from logservice.outcome import Applied, Outcome, Rejected


def apply_service(state: State, beat: ServiceHeartbeat) -> Outcome:
    """Take in a service's heartbeat; the outcome carries its commands.

    Rejected: TOO_LARGE for a service that takes more than HAKEEPER_SERVICE_BYTES_MAX,
    PERMISSION_DENIED for a service of another identity, BUSY when there are too many services, in
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
    if service is None:
        refused = _no_room(state, beat)
        if refused is not None:
            return refused
        service = ServiceState(
            beat.service, beat.kind, beat.address, {}, state.tick, owner=beat.owner
        )
        state.services[beat.service] = service
    service.kind, service.address = beat.kind, beat.address
    service.labels = dict(sorted(beat.labels.items()))
    service.last_tick = state.tick
    acked = set(beat.acked)
    service.queue = [item for item in service.queue if item.id not in acked]
    reply = replies.HeartbeatReply(state.phase, state.tick, commands=delivery.due(service.queue))
    return Applied(data=replies.encode(reply))


def expire(state: State) -> None:
    """Forget services that have been silent for too long. It looks once a second."""
    if state.tick % bounds.HAKEEPER_TICKS_PER_S:
        return
    gone = [name for name, service in state.services.items() if _silent(state, service)]
    for name in gone:
        del state.services[name]


def text_bytes(labels: Mapping[str, str]) -> int:
    """The bytes of all keys and values."""
    return sum(len(key.encode()) + len(value.encode()) for key, value in labels.items())


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
