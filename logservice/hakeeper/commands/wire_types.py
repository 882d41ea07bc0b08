"""Wire types: the bounded scalars of everything that HAKeeper encodes.

Theory of operation. Every input of the state machine is decoded by msgspec into structs whose
fields carry their bounds. So an input that decodes is already well-formed, and every replica
refuses the others in the same way. Two rules make that hold:

- integers stay below 2**62, so that no sum of two of them leaves what MessagePack can encode;
- structs are arrays that forbid unknown fields: skipping an unknown, deeply nested value would
  depend on how deep the interpreter's stack already is, and replicas would differ.

This file alone decides those bounds. Ids are plain integers here and become `logservice.ids` types
in the state: msgspec checks the numbers, mypy keeps the kinds apart.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from logservice import bounds
from logservice.ids import Incarnation, Index, Lsn, ReplicaId, ShardId, StoreId, Term
from logservice.safe_text import SAFE_PATTERN

_MAX = 2**62

Natural = Annotated[int, Meta(ge=0, le=_MAX)]
Positive = Annotated[int, Meta(ge=1, le=_MAX)]
Weight = Annotated[int, Meta(ge=1, le=bounds.SHARD_WEIGHT_MAX)]
Text = Annotated[str, Meta(max_length=bounds.NAME_BYTES_MAX, pattern=SAFE_PATTERN)]
"""A text, possibly empty, that is bounded and has nothing in it that a terminal would obey."""
Name = Annotated[str, Meta(min_length=1, max_length=bounds.NAME_BYTES_MAX, pattern=SAFE_PATTERN)]
Detail = Annotated[str, Meta(max_length=1024)]
"""A message for people; the sender cuts it to this length."""
AccessText = Annotated[
    str, Meta(min_length=1, max_length=bounds.ACCESS_TEXT_BYTES_MAX, pattern=SAFE_PATTERN)
]
"""An identity, or what a grant covers."""
Owner = Annotated[str, Meta(max_length=bounds.ACCESS_TEXT_BYTES_MAX)]
"""The client identity that a store authenticated; empty for none."""
RoleNames = Annotated[tuple[Name, ...], Meta(max_length=16)]
Path = Annotated[str, Meta(max_length=4096)]
"""A path in a file system, for people."""
Labels = Annotated[dict[Text, Text], Meta(max_length=bounds.HAKEEPER_LABELS_MAX)]

Shard = Annotated[ShardId, Meta(ge=0, le=_MAX)]
Replica = Annotated[ReplicaId, Meta(ge=1, le=_MAX)]
MaybeReplica = Annotated[ReplicaId, Meta(ge=0, le=_MAX)]
Store = Annotated[
    StoreId, Meta(min_length=1, max_length=bounds.NAME_BYTES_MAX, pattern=SAFE_PATTERN)
]
StoreIncarnation = Annotated[Incarnation, Meta(ge=0, le=2**63 - 1)]
LogIndex = Annotated[Index, Meta(ge=0, le=_MAX)]
LogLsn = Annotated[Lsn, Meta(ge=0, le=_MAX)]
RaftTerm = Annotated[Term, Meta(ge=0, le=_MAX)]
MembershipBytes = Annotated[bytes, Meta(max_length=64 * 1024)]
"""`Membership.encode()`; a shard with nine replicas and thousands of removed ids fits."""
