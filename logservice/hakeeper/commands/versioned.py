"""Versioned: the MessagePack forms of HAKeeper, each as every cluster version has it.

Theory of operation. A struct is an array of its fields in their order. A later cluster version
appends fields, each with a default, and adds kinds to unions. So the table `_FIELDS` is a whole
description of the past: how many fields each struct had in a version, and by its absence which
struct did not exist yet. The type of an older version is derived from the present one.

To write an older version is to write the present one, to read that as the older type, which drops
what it does not know, and to write the result. What was dropped held its default (INV-VERSION-1):
for what is proposed this is checked. To read an older version is to check it by the exact type
of that version and then to read it as the present one, where new fields get their defaults. The
check matters: a replica of the older release refuses a form that has more than it knows, and every
replica has to refuse the same entries.

This file alone knows which fields and kinds are of which version.
"""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Mapping
from typing import Annotated, Any, Final, Generic, Literal, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Struct

from logservice import versions

T = TypeVar("T")

_FIELDS: Final[Mapping[int, Mapping[str, int]]] = {
    1: {
        # commands/store_commands.py
        "StartReplica": 6,
        "RemoveReplica": 2,
        "Step": 4,
        "ChangeMembership": 3,
        "TransferLeader": 2,
        "ServiceOrder": 2,
        "QueuedCommand": 4,
        "CommandResult": 3,
        # commands/proposals.py
        "Tick": 1,
        "ShardSpec": 2,
        "InitialCluster": 6,
        "AdmitStore": 2,
        "SetJoining": 1,
        "DirectoryReport": 6,
        "ReplicaReport": 19,
        "StoreHeartbeat": 15,
        "ServiceHeartbeat": 6,
        "CreateShard": 3,
        "SetPhase": 1,
        "Order": 2,
        "ScheduleCommands": 2,
        "AllocateIds": 4,
        "AccessGrant": 3,
        "ChangeAccess": 4,
        "AckCommands": 2,
        # commands/replies.py
        "DirectoryEntry": 4,
        "Forgotten": 3,
        "HeartbeatReply": 9,
        # state.py
        "StoreState": 18,
        "ServiceState": 7,
        "Applicant": 2,
        "Behind": 2,
        "ShardState": 14,
        "Operator": 15,
        "State": 26,
    }
}
"""Cluster version -> struct -> how many fields it had. The newest version has what stands in the
code, and no row here.
"""


class Versioned(Generic[T]):
    """The bytes of one type in all versions: a version byte, then MessagePack.

    `error` is what `decode` raises for anything else.
    """

    def __init__(
        self,
        kind: Any,
        numbers: Mapping[int, bytes],
        error: type[ValueError],
        *,
        order: Literal["deterministic"] | None = None,
        whole: bool = False,
    ) -> None:
        """`numbers`: cluster version -> the version byte of this form. `kind`: a struct or a union
        of structs. `whole`: a value that an older version cannot express is refused, not cut.
        """
        self._whole = whole
        self._kind = kind
        self._numbers = dict(numbers)
        self._versions = {number: version for version, number in self._numbers.items()}
        self._error = error
        self._encoder = msgspec.msgpack.Encoder(order=order)
        self._decoder = msgspec.msgpack.Decoder(kind)
        self._older: dict[tuple[int, bool], msgspec.msgpack.Decoder[Any]] = {}

    def encode(self, value: T, version: int) -> bytes:
        """The bytes of `value` in that cluster version.

        Raises NotReady{cluster_version, needed} for a value that the version has not.
        """
        body = self._encoder.encode(value)
        if version not in _FIELDS:
            return self._numbers[version] + body
        try:
            older = self._encoder.encode(self._as_of(version, exact=False).decode(body))
        except (msgspec.MsgspecError, ValueError) as error:
            if self._is_well_formed(body):
                raise versions.too_early(version, version + 1) from error
            older = body  # every version refuses it when it is read
        if (
            self._whole
            and older != body
            and self._encoder.encode(self._decoder.decode(older)) != body
        ):
            raise versions.too_early(version, version + 1)
        return self._numbers[version] + older

    def decode(self, data: bytes) -> tuple[T, int]:
        """The value, and the cluster version whose form the bytes have."""
        version = self._versions.get(bytes(data[:1]))
        if version is None:
            raise self._error(f"version {data[:1].hex()}")
        return self.decode_as(memoryview(data)[1:], version), version

    def decode_as(self, body: memoryview | msgspec.Raw, version: int) -> T:
        """The value of bytes in the form of that version, without a version byte."""
        try:
            if version in _FIELDS:
                self._as_of(version, exact=True).decode(body)
            value: T = self._decoder.decode(body)
        except (msgspec.MsgspecError, ValueError) as error:
            raise self._error(str(error)) from error
        return value

    def _is_well_formed(self, body: bytes) -> bool:
        try:
            self._decoder.decode(body)
        except (msgspec.MsgspecError, ValueError):
            return False
        return True

    def _as_of(self, version: int, *, exact: bool) -> msgspec.msgpack.Decoder[Any]:
        decoder = self._older.get((version, exact))
        if decoder is None:
            decoder = msgspec.msgpack.Decoder(_as_of(self._kind, version, exact))
            self._older[version, exact] = decoder
        return decoder


def _as_of(kind: Any, version: int, exact: bool) -> Any:
    """The type that `kind` was in that version. `exact`: it forbids what it does not know."""
    origin = get_origin(kind)
    if origin is Annotated:
        inner, *rest = get_args(kind)
        return Annotated[(_as_of(inner, version, exact), *rest)]
    if origin in (Union, types.UnionType):
        kept = [one for one in get_args(kind) if not _is_newer(one, version)]
        return functools.reduce(operator.or_, (_as_of(one, version, exact) for one in kept))
    if origin is not None:
        arguments = tuple(
            one if one is Ellipsis else _as_of(one, version, exact) for one in get_args(kind)
        )
        return origin[arguments]
    if isinstance(kind, type) and issubclass(kind, Struct):
        return _struct_as_of(kind, version, exact)
    return kind


def _is_newer(kind: Any, version: int) -> bool:
    return (
        isinstance(kind, type)
        and issubclass(kind, Struct)
        and kind.__name__ not in _FIELDS[version]
    )


@functools.cache
def _struct_as_of(kind: type[Struct], version: int, exact: bool) -> type[Struct]:
    config = kind.__struct_config__
    fields: list[Any] = []
    for field in msgspec.structs.fields(kind)[: _FIELDS[version][kind.__name__]]:
        default: Any = msgspec.field(name=field.encode_name)
        if field.default is not msgspec.NODEFAULT:
            default = msgspec.field(default=field.default)
        elif field.default_factory is not msgspec.NODEFAULT:
            default = msgspec.field(default_factory=field.default_factory)
        fields.append((field.name, _as_of(field.type, version, exact), default))
    return msgspec.defstruct(
        f"{kind.__name__}AsOf{version}",
        fields,
        module=kind.__module__,
        tag=config.tag,
        array_like=True,
        forbid_unknown_fields=exact,
    )


assert set(_FIELDS) == set(range(versions.FIRST, versions.NEWEST))
