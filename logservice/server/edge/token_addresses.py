"""token_addresses: which addresses of other stores a caller is told.

Theory of operation. gRPC either asks every client of a port for a certificate or none, so clients
without one have a port of their own, `tokens.port_offset` above the other one on every store. What
stores know of each other, and say in answers, is where clients with certificates go. So in the
answers to a caller that came without a certificate those addresses are moved by the offset, in one
place and by the names of the fields: whatever answer has one, also one that is added later.
"""

from __future__ import annotations

from contextvars import ContextVar
from functools import cache
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from logservice_wire.errors import LogServiceError, error_for

offset: Final[ContextVar[int]] = ContextVar("offset", default=0)
"""By how much the port moves in what the call of this task is told. `server.edge.guard` sets it."""

_FIELDS: Final = frozenset({"leader_address", "client_address", "client_addresses"})
_METADATA: Final = "address"
"""Of an error: where else the request is served."""


def moved(address: str) -> str:
    """`address` (host:port) as the caller of this task reaches it; "" stays so."""
    host, separator, port = address.rpartition(":")
    by = offset.get()
    if not by or not separator or not port.isdecimal():
        return address
    return f"{host}:{int(port) + by}"


def move_in(message: Any) -> None:
    """Change the addresses in an answer that nobody else has."""
    if offset.get():
        _move(message)


def moved_error(error: LogServiceError) -> LogServiceError:
    """`error`, or one like it with the address that the caller of this task can use."""
    address = error.metadata.get(_METADATA, "")
    if not offset.get() or not address:
        return error
    found = error_for(error.reason, error.message)
    found.metadata = {**error.metadata, _METADATA: moved(address)}
    return found


def _move(message: Any) -> None:
    for field in _leading(message.DESCRIPTOR):
        value = getattr(message, field.name)
        if field.name in _FIELDS:
            if field.is_repeated:
                value[:] = [moved(one) for one in value]
            else:
                setattr(message, field.name, moved(value))
        elif field.is_repeated:
            for one in value:
                _move(one)
        elif message.HasField(field.name):
            _move(value)


@cache
def _leading(descriptor: Descriptor) -> tuple[FieldDescriptor, ...]:
    """The fields that are addresses, or messages with one somewhere inside."""
    return tuple(one for one in descriptor.fields if _leads(one, frozenset()))


def _leads(field: FieldDescriptor, above: frozenset[str]) -> bool:
    """`above`: the messages that were entered on the way; one inside itself adds nothing."""
    if field.name in _FIELDS:
        return True
    inner = field.message_type
    if inner is None or inner.GetOptions().map_entry or inner.full_name in above:
        return False
    return any(_leads(one, above | {inner.full_name}) for one in inner.fields)
