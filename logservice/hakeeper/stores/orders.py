"""Orders: commands that people send to services. A request that is repeated is one command.

Theory of operation. Whoever sends a command and does not learn the outcome sends it again, under
the same request id. The newest HAKEEPER_ORDERS_REMEMBERED requests are remembered by digests: of
the identity with its request id, and of what was asked. A repetition is answered with the id of
the command that the first one made. It makes no second command, wherever the first one is by then:
it waits, the service handled it, or it went with a service that expired. A service that registered
again under the name gets nothing from a repetition either.

INV-HK-ORDERS: a request that is remembered made exactly one command.
"""

from __future__ import annotations

import hashlib

import msgspec
from logservice_wire.errors import Reason

from logservice import bounds
from logservice.hakeeper.commands.proposals import SendOrder
from logservice.hakeeper.commands.store_commands import ServiceOrder
from logservice.hakeeper.state import SentOrder, State
from logservice.hakeeper.stores import delivery
from logservice.outcome import Applied, Outcome, Rejected

_encoder = msgspec.msgpack.Encoder(order="deterministic")
_DIGEST_BYTES = 16


def apply_order(state: State, order: SendOrder) -> Outcome:
    """Queue a command for a service; `value` of the outcome is the command's id.

    Rejected: INVALID_ARGUMENT{field} for an unknown service, and for a request id under which
    something else was asked; BUSY when its queue, or that of all services together, is full.
    """
    key, wish = _digest(order.owner, order.request_id), _wish(order)
    known = state.sent.get(key)
    if known is not None and known.wish != wish:
        why = "another command was sent under this request id"
        return Rejected(Reason.INVALID_ARGUMENT, {"field": "request_id", "why": why})
    if known is not None:
        return Applied(value=known.command, duplicate=True)
    service = state.services.get(order.service)
    if service is None:
        why = f"no service is called {order.service}"
        return Rejected(Reason.INVALID_ARGUMENT, {"field": "service_id", "why": why})
    if len(service.queue) >= bounds.HAKEEPER_QUEUE_MAX:
        return Rejected(Reason.BUSY, {"limit": str(bounds.HAKEEPER_QUEUE_MAX)})
    if sum(len(one.queue) for one in state.services.values()) >= bounds.HAKEEPER_ORDERS_MAX:
        return Rejected(Reason.BUSY, {"limit": str(bounds.HAKEEPER_ORDERS_MAX)})
    command = delivery.queue_command(
        state, service.queue, 0, ServiceOrder(order.kind, order.payload)
    )
    state.sent[key] = SentOrder(command, wish)
    if len(state.sent) > bounds.HAKEEPER_ORDERS_REMEMBERED:
        del state.sent[min(state.sent, key=lambda one: state.sent[one].command)]
    return Applied(value=command)


def _wish(order: SendOrder) -> bytes:
    return _digest(order.service, order.kind, order.payload)


def _digest(*parts: str | bytes) -> bytes:
    return hashlib.blake2b(_encoder.encode(parts), digest_size=_DIGEST_BYTES).digest()
