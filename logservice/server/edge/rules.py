"""rules: what each RPC asks of its caller. One row per RPC; an RPC without a row is not served.

Theory of operation. `server.edge.guard` registers services through this table, and a store with an
RPC that is not in it does not start. The tests walk the proto descriptors and try every row with
every role, so that a new RPC without an entry fails them.

Why a row is what it is:

- probing, status and routing of a shard: any role there, as each of them needs it;
- a hold keeps records from being truncated, and so decides about the log's space: TRUNCATE;
- timestamps and the writer's epoch belong to whoever appends;
- writers and holds belong to an identity; whoever asks to override that needs ADMIN over the shard
  instead, and is audited as administration (`OVERRIDE`);
- what a service of the database reports and allocates: APPEND over the cluster;
- a leader is moved by ADMIN over the shard or over the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from logservice.access import Role
from logservice.value import value

_ANY: Final = frozenset(Role)
_LOG: Final = "/logservice.v1.Log/"
_HAKEEPER: Final = "/logservice.v1.HAKeeper/"
_ADMIN: Final = "/logservice.v1.Admin/"


@value
class Rule:
    """One RPC.

    roles: one of them is needed; empty: an identity is enough. shard: where in the request the
    shard is named; "": the RPC is about the cluster. cluster_too: the role over the cluster will do
    instead of that over the shard. admin: goes into the audit log always, whatever is decided.
    override: the request can ask for it; then `OVERRIDE` is the rule.
    """

    roles: frozenset[Role]
    shard: str = "shard_id"
    cluster_too: bool = False
    admin: bool = False
    override: bool = False


OVERRIDE: Final = Rule(frozenset({Role.ADMIN}), admin=True)
"""A request that acts on what belongs to another identity."""

RULES: Final[Mapping[str, Rule]] = {
    _LOG + "Connect": Rule(_ANY),
    _LOG + "OpenSession": Rule(frozenset({Role.APPEND})),
    _LOG + "Append": Rule(frozenset({Role.APPEND})),
    _LOG + "AppendStream": Rule(frozenset({Role.APPEND}), shard="open.shard_id"),
    _LOG + "Read": Rule(frozenset({Role.READ})),
    _LOG + "Follow": Rule(frozenset({Role.READ})),
    _LOG + "Truncate": Rule(frozenset({Role.TRUNCATE})),
    _LOG + "GetShardStatus": Rule(_ANY, cluster_too=True),
    _LOG + "AcquireWriter": Rule(frozenset({Role.APPEND}), override=True),
    _LOG + "ReleaseWriter": Rule(frozenset({Role.APPEND}), override=True),
    _LOG + "SetHold": Rule(frozenset({Role.TRUNCATE}), override=True),
    _LOG + "ReleaseHold": Rule(frozenset({Role.TRUNCATE}), override=True),
    _LOG + "AllocateTimestamps": Rule(frozenset({Role.APPEND})),
    _HAKEEPER + "Heartbeat": Rule(frozenset({Role.APPEND}), shard=""),
    _HAKEEPER + "GetClusterState": Rule(frozenset({Role.READ, Role.ADMIN}), shard=""),
    _HAKEEPER + "GetShardInfo": Rule(_ANY, cluster_too=True),
    _HAKEEPER + "AllocateIds": Rule(frozenset({Role.APPEND}), shard=""),
    _HAKEEPER + "CreateShard": Rule(frozenset({Role.ADMIN}), shard="", admin=True),
    _HAKEEPER + "GetAccessList": Rule(frozenset({Role.ADMIN}), shard="", admin=True),
    _HAKEEPER + "ChangeAccess": Rule(frozenset({Role.ADMIN}), shard="", admin=True),
    _HAKEEPER + "AdmitStore": Rule(frozenset({Role.ADMIN}), shard="", admin=True),
    _HAKEEPER + "SetJoining": Rule(frozenset({Role.ADMIN}), shard="", admin=True),
    _ADMIN + "GetStoreStatus": Rule(frozenset({Role.READ, Role.ADMIN}), shard=""),
    _ADMIN + "GetClusterReport": Rule(frozenset({Role.READ, Role.ADMIN}), shard=""),
    _ADMIN + "TransferLeader": Rule(frozenset({Role.ADMIN}), cluster_too=True, admin=True),
    "/grpc.health.v1.Health/Check": Rule(frozenset(), shard=""),
    "/grpc.health.v1.Health/List": Rule(frozenset(), shard=""),
    "/grpc.health.v1.Health/Watch": Rule(frozenset(), shard=""),
}
