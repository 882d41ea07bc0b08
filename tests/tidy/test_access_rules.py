"""Every RPC of the proto has a row in `server.edge.rules`, and every row is an RPC."""

from __future__ import annotations

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor
from grpc_health.v1 import health_pb2
from logservice_wire.v1 import admin_pb2, hakeeper_pb2, log_pb2

from logservice.server.edge.rules import RULES

FILES = (log_pb2, hakeeper_pb2, admin_pb2, health_pb2)


def rpcs() -> dict[str, Descriptor]:
    """Path of every RPC that a store can serve, and what its request is."""
    found = {}
    for file in FILES:
        pool = descriptor_pool.Default().FindFileByName(file.DESCRIPTOR.name)
        for service in pool.services_by_name.values():
            for method in service.methods:
                found[f"/{service.full_name}/{method.name}"] = method.input_type
    return found


def test_every_rpc_has_a_rule_and_every_rule_an_rpc() -> None:
    assert set(RULES) == set(rpcs()), "a new RPC needs a row in logservice/server/edge/rules.py"


def test_rules_name_fields_that_exist() -> None:
    for path, message in rpcs().items():
        names = [name for name in RULES[path].shard.split(".") if name]
        for name in names:
            field = message.fields_by_name[name]
            message = field.message_type


def test_only_rpcs_without_a_shard_are_the_clusters() -> None:
    """A request that names a shard is decided by that shard."""
    for path, message in rpcs().items():
        if "shard_id" in message.fields_by_name and path != "/logservice.v1.HAKeeper/CreateShard":
            assert RULES[path].shard == "shard_id", path
