"""Every RPC of the proto has a row in the table, and every row is an RPC, with its messages."""

from __future__ import annotations

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import MethodDescriptor
from grpc_health.v1 import health_pb2
from logservice_wire.v1 import admin_pb2, hakeeper_pb2, log_pb2

from logservice.server.edge.guard import SERVED

FILES = (log_pb2, hakeeper_pb2, admin_pb2, health_pb2)


def rpcs() -> dict[str, MethodDescriptor]:
    """Every RPC that a store can serve: its path, and what the proto says of it."""
    found = {}
    for file in FILES:
        pool = descriptor_pool.Default().FindFileByName(file.DESCRIPTOR.name)
        for service in pool.services_by_name.values():
            for method in service.methods:
                found[f"/{service.full_name}/{method.name}"] = method
    return found


def test_every_rpc_has_a_rule_and_every_rule_an_rpc() -> None:
    assert set(SERVED) == set(rpcs()), "a new RPC needs a row in client/logservice_wire/rpcs.py"


def test_rows_have_the_messages_of_the_proto() -> None:
    for path, method in rpcs().items():
        assert SERVED[path].request.DESCRIPTOR is method.input_type, path
        assert SERVED[path].response.DESCRIPTOR is method.output_type, path


def test_rules_name_fields_that_exist() -> None:
    for path, method in rpcs().items():
        message = method.input_type
        names = [name for name in SERVED[path].shard.split(".") if name]
        for name in names:
            field = message.fields_by_name[name]
            message = field.message_type


def test_only_rpcs_without_a_shard_are_the_clusters() -> None:
    """The shard that a request names decides who may make it."""
    for path, method in rpcs().items():
        names = method.input_type.fields_by_name
        if "shard_id" in names and path != "/logservice.v1.HAKeeper/CreateShard":
            assert SERVED[path].shard == "shard_id", path
