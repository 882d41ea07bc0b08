"""The JSON documents that pages and scripts read, byte by byte: ``/api/v1`` and ``-o json``.

Names and the order of fields are a contract. `logctl` runs as it does for a person, against a gRPC
server that gives the answers of `picture`. After a change that was meant, ``python -m
tests.documents`` writes the golden files anew, and their difference is reviewed.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest
from google.protobuf.message import Message
from logservice_wire.block import encode_block
from logservice_wire.errors import NotReady
from logservice_wire.status import STATUS_DETAILS_KEY, to_status_details
from logservice_wire.v1 import admin_pb2, hakeeper_pb2, log_pb2

from logservice.cli.logctl import logctl
from logservice.cli.main import logservice
from logservice.cli.shell import exit_codes
from logservice.server.monitor.own.status import to_json
from logservice.server.monitor.port.app import AdminApp
from tests.cli.test_logctl_output import LEAVES
from tests.cli.test_logdb_commands import data as data_directory
from tests.documents import picture

data = data_directory
GOLDEN = Path(__file__).with_name("golden")

API = ("store", "cluster", "stores", "shards", "operators")


def api(path: str, place: int = 1, *, hakeeper: bool = True) -> bytes:
    """The answer of a store's admin port."""
    board = SimpleNamespace(
        status=lambda: picture.store_status(place),
        cluster=lambda: picture.report(hakeeper=hakeeper),
    )
    app = AdminApp(cast(Any, board), lambda accept: (b"", ""), loopback_only=False)
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": path, "HTTP_ACCEPT": ""}
    return b"".join(app(cast(Any, environ), cast(Any, lambda status, headers: None)))


def check(name: str, found: bytes) -> None:
    path = GOLDEN / f"{name}.json"
    if WRITE:
        path.write_bytes(found)
    assert found == path.read_bytes(), f"{path.name}: see the module's text"


WRITE = False
"""Whether to write the golden files; ``python -m tests.documents`` sets it."""


@pytest.mark.parametrize("part", API)
def test_the_api(part: str) -> None:
    check(f"api-{part}", api(f"/api/v1/{part}"))


def test_the_api_of_a_store_with_a_failed_directory() -> None:
    check("api-store-failed", api("/api/v1/store", 2))


@pytest.mark.parametrize("part", ["cluster", "stores", "shards"])
def test_the_api_while_hakeeper_is_silent(part: str) -> None:
    check(f"api-{part}-silent", api(f"/api/v1/{part}", hakeeper=False))


def test_the_probe() -> None:
    check("readyz", api("/readyz"))


# --- logctl ---------------------------------------------------------------------------------------

POSITION = log_pb2.LogPosition(
    first_lsn=11, applied_lsn=14, leader_store="s1", leader_address="s1.client:2"
)
READ = log_pb2.ReadResponse(
    position=POSITION,
    next_lsn=15,
    blocks=[
        log_pb2.LogBlock(
            first_lsn=11,
            record_count=2,
            term=3,
            block=encode_block([b"one", b"\xff\x00"], timestamp_us=1),
        ),
        log_pb2.LogBlock(first_lsn=13, record_count=2, term=3, gap="GAP_REASON_FENCED"),
    ],
)


def appended(requests: Iterator[log_pb2.AppendStreamRequest]) -> Iterator[Message]:
    """The acks of an AppendStream."""
    for request in requests:
        acks = [
            log_pb2.AppendStreamResponse.Ack(sequence=one.sequence, lsn=15, record_count=2)
            for one in request.blocks
        ]
        if acks:
            yield log_pb2.AppendStreamResponse(position=POSITION, acks=acks)


ANSWERS: dict[str, Callable[[], Message]] = {
    "Connect": lambda: log_pb2.ConnectResponse(position=POSITION),
    "OpenSession": lambda: log_pb2.OpenSessionResponse(
        position=POSITION, session_id=5, nonce=b"n" * 16
    ),
    "Read": lambda: READ,
    "Truncate": lambda: log_pb2.TruncateResponse(position=POSITION, truncated_lsn=10),
    "GetShardStatus": lambda: log_pb2.GetShardStatusResponse(
        position=POSITION,
        truncated_lsn=10,
        committed_index=91,
        applied_index=90,
        term=3,
        writer_holder="writer",
        writer_epoch=9,
        writer_owner="owner-w",
        next_timestamp=77,
        requested_truncation_lsn=40,
        sessions=6,
        replica_id=101,
        store_id="s1",
        holds=[
            log_pb2.Hold(name="backup", lsn=30, owner="owner-b"),
            log_pb2.Hold(name="reader", lsn=20, owner="owner-r"),
        ],
    ),
    "AcquireWriter": lambda: log_pb2.AcquireWriterResponse(position=POSITION, epoch=10),
    "ReleaseWriter": lambda: log_pb2.ReleaseWriterResponse(position=POSITION),
    "SetHold": lambda: log_pb2.SetHoldResponse(position=POSITION),
    "ReleaseHold": lambda: log_pb2.ReleaseHoldResponse(position=POSITION),
    "AllocateTimestamps": lambda: log_pb2.AllocateTimestampsResponse(position=POSITION, first=78),
    "GetClusterState": picture.cluster_state,
    "AllocateIds": lambda: hakeeper_pb2.AllocateIdsResponse(first=88),
    "CreateShard": lambda: hakeeper_pb2.CreateShardResponse(shard_id=3),
    "GetAccessList": lambda: hakeeper_pb2.AccessList(
        version=6,
        version_here=5,
        grants=[hakeeper_pb2.AccessGrant(identity="i", scope="shard/1", roles=["append", "read"])],
    ),
    "ChangeAccess": lambda: hakeeper_pb2.ChangeAccessResponse(version=7),
    "AdmitStore": hakeeper_pb2.AdmitStoreResponse,
    "SetJoining": hakeeper_pb2.SetJoiningResponse,
    "GetStoreStatus": lambda: picture.store_answer(2),
    "GetClusterReport": lambda: admin_pb2.ClusterReport(json=to_json(picture.report())),
    "TransferLeader": lambda: admin_pb2.TransferLeaderResponse(leader_store="s2"),
}


class Server(grpc.GenericRpcHandler):
    """A server that answers every call from the table."""

    def __init__(self) -> None:
        self.address = ""
        self.silent = False

    def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        name = call.method.rpartition("/")[2]
        dump = {"response_serializer": lambda answer: answer.SerializeToString()}
        if name == "AppendStream":
            return grpc.stream_stream_rpc_method_handler(
                lambda requests, context: appended(requests),
                log_pb2.AppendStreamRequest.FromString,
                **dump,
            )
        if name == "Follow":
            return grpc.unary_stream_rpc_method_handler(
                lambda request, context: iter([READ]), **dump
            )
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: self._answer(name, context), **dump
        )

    def _answer(self, name: str, context: grpc.ServicerContext) -> Message:
        if name == "GetShardInfo":
            info = picture.shard_info(1)
            info.leader_address = self.address
            info.client_addresses[:] = [self.address]
            return info
        if self.silent and name == "GetClusterState":
            details = to_status_details(NotReady("no leader"))
            context.set_trailing_metadata(((STATUS_DETAILS_KEY, details),))
            context.abort(grpc.StatusCode.UNAVAILABLE, "no leader")
        return ANSWERS[name]()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    answers = Server()
    running = grpc.server(ThreadPoolExecutor(8), (answers,))
    answers.address = f"127.0.0.1:{running.add_insecure_port('127.0.0.1:0')}"
    running.start()
    yield answers
    running.stop(None).wait()


def printed(
    command: Any, capture: pytest.CaptureFixture[str], *arguments: object, code: int = 0
) -> bytes:
    """The standard output of a command."""
    capture.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["program", *map(str, arguments), "-o", "json"])
        patch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO()))
        with pytest.raises(SystemExit) as caught:
            exit_codes.run(command, "program")
    shown = capture.readouterr()
    assert caught.value.code == code, shown.err
    return shown.out.encode()


COMMANDS = {
    "append": ("append", 1, "one", "two"),
    "read": ("read", 1),
    "follow": ("follow", 1, "--count", 2),
    "truncate": ("truncate", 1, 10),
    "status": ("status", 1),
    "writer-acquire": ("writer", "acquire", 1, "me"),
    "writer-release": ("writer", "release", 1, 9),
    "hold-set": ("hold", "set", 1, "backup", 30),
    "hold-release": ("hold", "release", 1, "backup"),
    "timestamps": ("timestamps", 1, 3),
    "transfer": ("transfer", 1),
    "shard-create": ("shard", "create"),
    "shards": ("shards",),
    "stores": ("stores",),
    "store": ("store", "ADDRESS"),
    "admit": ("admit", "s4", "--hakeeper"),
    "joining": ("joining", "by-verb"),
    "acl-grant": ("acl", "grant", "i", "shard/1", "append"),
    "acl-revoke": ("acl", "revoke", "i", "shard/1", "append"),
    "acl-list": ("acl", "list"),
    "top": ("top",),
    "ids": ("ids", 3),
}


def ctl(
    server: Server, capture: pytest.CaptureFixture[str], *words: object, code: int = 0
) -> bytes:
    named = [server.address if word == "ADDRESS" else word for word in words]
    return printed(logctl, capture, "--endpoints", server.address, *named, code=code)


@pytest.mark.parametrize("name", COMMANDS)
def test_logctl(name: str, server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    check(f"logctl-{name}", ctl(server, capfd, *COMMANDS[name]))


def test_logctl_repairs(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    check("logctl-repairs", ctl(server, capfd, "repairs", code=exit_codes.NEGATIVE))


def test_logctl_doctor(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    found = ctl(server, capfd, "doctor", code=exit_codes.NEGATIVE)
    assert server.address.encode() not in found
    check("logctl-doctor", found)


@pytest.mark.parametrize("name", ["stores", "shards", "repairs"])
def test_logctl_while_hakeeper_is_silent(
    name: str, server: Server, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "silent", True)
    found = ctl(server, capfd, "--timeout", 2, name, code=exit_codes.UNAVAILABLE)
    check(f"logctl-{name}-silent", found)


def test_every_command_of_logctl_is_here() -> None:
    named = {f"logctl {name.replace('-', ' ')}" for name in COMMANDS}
    assert set(LEAVES) - named == {"logctl repairs", "logctl doctor"}


# --- logservice -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"), [("check", ()), ("dump", ()), ("stats", ()), ("records", (7,))]
)
def test_logdb(
    name: str, words: tuple[object, ...], data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = exit_codes.NEGATIVE if name == "records" else 0
    found = printed(logservice, capfd, "logdb", name, data, *words, code=code)
    check(f"logdb-{name}", _steady(found))


def _steady(found: bytes) -> bytes:
    """The document without the incarnation, which is drawn at random."""
    return re.sub(rb'"incarnation": \d+', b'"incarnation": 0', found)
