"""The JSON documents that pages and scripts read, byte by byte: ``/api/v1`` and ``-o json``.

Names and the order of fields are a contract. `logctl` runs as it does for a person, against a gRPC
server that gives the answers of `picture`. After a change that was meant, ``python -m
tests.documents`` writes the golden files anew, and their difference is reviewed.
"""

from __future__ import annotations

import io
import json
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

from logservice.cli.ctl import events
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

API = ("store", "cluster", "stores", "shards", "operators", "services", "tn-shards", "events")


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


def test_the_shards_that_a_page_shows() -> None:
    check("api-shards-page", api("/api/v1/shards/page"))


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


EVENTS = hakeeper_pb2.WatchEventsResponse(
    revision=picture.view().revision,
    events=[
        hakeeper_pb2.ClusterEvent(
            revision=picture.view().revision,
            tick=1234,
            kind="leader",
            shard_id=1,
            replica_id=101,
            store="s1",
            text="term 3",
        )
    ],
)


def appended(requests: Iterator[log_pb2.AppendShardsRequest]) -> Iterator[Message]:
    """The acks of an AppendShards."""
    for request in requests:
        answer = log_pb2.AppendShardsResponse()
        for one in request.blocks:
            lane = answer.lanes.add(lane=one.lane, position=POSITION)
            lane.acks.add(sequence=one.sequence, lsn=15, record_count=2)
        if answer.lanes:
            yield answer


SESSIONS = [
    log_pb2.NamedSession(
        session_id=9,
        name="spark-stream/0b7c/3",
        owner="owner-a",
        epoch=41,
        appended=7,
        last_used=80,
        used_us=1_795_752_000_000_000,
    ),
    log_pb2.NamedSession(
        session_id=11, name="spark-write/nightly/0", owner="owner-b", ttl_s=86_400, last_used=81
    ),
    log_pb2.NamedSession(session_id=12, name="lost", owner="owner-b", lost=True, last_used=82),
    log_pb2.NamedSession(session_id=13, name="gone", owner="owner-b", forgotten=True),
]

ANSWERS: dict[str, Callable[[], Message]] = {
    "Connect": lambda: log_pb2.ConnectResponse(position=POSITION),
    "OpenSession": lambda: log_pb2.OpenSessionResponse(
        position=POSITION, session_id=5, nonce=b"n" * 16
    ),
    "Read": lambda: READ,
    "LsnAtTime": lambda: log_pb2.LsnAtTimeResponse(position=POSITION, lsn=11, truncated=True),
    "Digest": lambda: log_pb2.DigestResponse(
        position=POSITION,
        digest=b"d" * 32,
        at_lsn=15,
        chain=b"c" * 32,
        records=2,
        gap_lsns=2,
        value_bytes=5,
    ),
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
            log_pb2.Hold(name="backup", lsn=30, owner="owner-b", revision=7, age_s=3661.2),
            log_pb2.Hold(
                name="reader",
                lsn=20,
                owner="owner-r",
                revision=9,
                ttl_s=60,
                age_s=12.6,
                expires_in_s=47.4,
            ),
        ],
    ),
    "AcquireWriter": lambda: log_pb2.AcquireWriterResponse(position=POSITION, epoch=10),
    "ReleaseWriter": lambda: log_pb2.ReleaseWriterResponse(position=POSITION),
    "SetHold": lambda: log_pb2.SetHoldResponse(position=POSITION, ttl_s=60),
    "ListSessions": lambda: log_pb2.ListSessionsResponse(position=POSITION, sessions=SESSIONS),
    "ForgetSession": lambda: log_pb2.ForgetSessionResponse(position=POSITION),
    "RenewHold": lambda: log_pb2.RenewHoldResponse(position=POSITION, lsn=30),
    "ReleaseHold": lambda: log_pb2.ReleaseHoldResponse(position=POSITION),
    "AllocateTimestamps": lambda: log_pb2.AllocateTimestampsResponse(position=POSITION, first=78),
    "GetClusterState": picture.cluster_state,
    "AllocateIds": lambda: hakeeper_pb2.AllocateIdsResponse(first=88),
    "CreateShard": lambda: hakeeper_pb2.CreateShardResponse(shard_id=3),
    "ListShards": lambda: hakeeper_pb2.ListShardsResponse(shards=[picture.shard_info(1)]),
    "ResolveShard": lambda: picture.shard_info(1),
    "ChangeShard": lambda: hakeeper_pb2.ChangeShardResponse(revision=4),
    "CloseShard": lambda: log_pb2.CloseShardResponse(
        position=POSITION, end_lsn=51, closed_index=91
    ),
    "DeleteShard": hakeeper_pb2.DeleteShardResponse,
    "GetAccessList": lambda: hakeeper_pb2.AccessList(
        version=6,
        version_here=5,
        grants=[hakeeper_pb2.AccessGrant(identity="i", scope="shard/1", roles=["append", "read"])],
        denials=[hakeeper_pb2.AccessGrant(identity="i*", scope="name/w*", roles=["all"])],
        quotas=[
            hakeeper_pb2.IdentityQuota(streams_max=9),
            hakeeper_pb2.IdentityQuota(identity="i", bytes_per_s=70_000),
        ],
        quotas_version=3,
        quotas_version_here=2,
        quotas_configured=hakeeper_pb2.IdentityQuota(
            requests_per_s=0, bytes_per_s=0, rpcs_max=8192, streams_max=4096, connections_max=1024
        ),
        stores=[
            hakeeper_pb2.StoreAccess(store_id="s1", version=6),
            hakeeper_pb2.StoreAccess(store_id="s2", version=5),
        ],
    ),
    "ChangeAccess": lambda: hakeeper_pb2.ChangeAccessResponse(version=7),
    "SetQuota": lambda: hakeeper_pb2.SetQuotaResponse(version=4),
    "AdmitStore": hakeeper_pb2.AdmitStoreResponse,
    "SetJoining": hakeeper_pb2.SetJoiningResponse,
    "SendServiceCommand": lambda: hakeeper_pb2.SendServiceCommandResponse(command_id=9),
    "SetServiceState": hakeeper_pb2.SetServiceStateResponse,
    "CreateTnShard": lambda: hakeeper_pb2.CreateTnShardResponse(tn_shard_id=2),
    "DeleteTnShard": hakeeper_pb2.DeleteTnShardResponse,
    "SetStoreMode": hakeeper_pb2.SetStoreModeResponse,
    "SetRepair": lambda: hakeeper_pb2.SetRepairResponse(until_tick=700),
    "AdoptShard": hakeeper_pb2.AdoptShardResponse,
    "ForgetStore": hakeeper_pb2.ForgetStoreResponse,
    "MoveReplica": lambda: hakeeper_pb2.MoveReplicaResponse(wish_id=3),
    "CancelWish": hakeeper_pb2.CancelWishResponse,
    "CancelOperator": hakeeper_pb2.CancelOperatorResponse,
    "SetLeader": lambda: hakeeper_pb2.SetLeaderResponse(until_tick=700),
    "ChangeSettings": hakeeper_pb2.ChangeSettingsResponse,
    "CheckImpact": lambda: hakeeper_pb2.Impact(
        shards=2,
        replicas=3,
        leaders=1,
        findings=[
            hakeeper_pb2.ImpactFinding(kind="quorum", shard_id=1, text="shard 1 would stop"),
            hakeeper_pb2.ImpactFinding(kind="capacity", shard_id=-1, text="too many bytes"),
        ],
    ),
    "Rebalance": hakeeper_pb2.RebalanceResponse,
    "PlanBalance": lambda: hakeeper_pb2.BalancePlan(
        moves=[hakeeper_pb2.BalanceMove(shard_id=1, from_store="s1", to_store="s3", why="5 and 1")],
        hand_overs=[hakeeper_pb2.BalanceMove(shard_id=2, from_store="s1", to_store="s2", why="3")],
        more=True,
        waits="shard 2 is not whole",
    ),
    "RaiseClusterVersion": lambda: hakeeper_pb2.RaiseClusterVersionResponse(cluster_version=2),
    "GetStoreStatus": lambda: picture.store_answer(2),
    "GetClusterReport": lambda: admin_pb2.ClusterReport(json=to_json(picture.report())),
    "ReloadConfig": lambda: admin_pb2.ReloadConfigResponse(
        taken_up=["logging.level", "limits.read_bytes_max"],
        needs_restart=["raft.tick_ms"],
        first_start=["bootstrap.replicas"],
        config=admin_pb2.ConfigInEffect(
            digest="5f1c9b2e7a604d83", since_us=1_764_000_000_000_000, waiting=["raft.tick_ms"]
        ),
    ),
    "SetLogLevel": lambda: admin_pb2.SetLogLevelResponse(
        log_level=admin_pb2.LogLevel(level="debug", configured="info", ends_in_ms=599_999)
    ),
    "DrainDirectory": hakeeper_pb2.DrainDirectoryResponse,
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
        if name == "AppendShards":
            return grpc.stream_stream_rpc_method_handler(
                lambda requests, context: appended(requests),
                log_pb2.AppendShardsRequest.FromString,
                **dump,
            )
        if name == "WatchEvents":
            return grpc.unary_stream_rpc_method_handler(
                lambda request, context: iter([EVENTS]), **dump
            )
        if name == "Follow":
            return grpc.unary_stream_rpc_method_handler(
                lambda request, context: iter([READ]), **dump
            )
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: self._answer(name, request, context), **dump
        )

    def _answer(self, name: str, request: bytes, context: grpc.ServicerContext) -> Message:
        fresh = name == "GetClusterState"
        if name == "GetShardInfo":
            fresh = hakeeper_pb2.GetShardInfoRequest.FromString(request).fresh
        if self.silent and fresh:
            details = to_status_details(NotReady("no leader"))
            context.set_trailing_metadata(((STATUS_DETAILS_KEY, details),))
            context.abort(grpc.StatusCode.UNAVAILABLE, "no leader")
        if name == "GetShardInfo":
            info = picture.shard_info(1)
            info.leader_address = self.address
            info.client_addresses[:] = [self.address]
            info.directory_index, info.directory_age_ms = (88, 7500) if self.silent else (0, 0)
            return info
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
    "lsn-at": ("lsn-at", 1, "2026-11-25T16:40:00Z"),
    "digest": ("digest", 1, 11, 15),
    "truncate": ("truncate", 1, 10),
    "writer-acquire": ("writer", "acquire", 1, "me"),
    "writer-release": ("writer", "release", 1, 9),
    "hold-set": ("hold", "set", 1, "backup", 30),
    "hold-set-ttl": ("hold", "set", 1, "backup", 30, "--ttl", 60),
    "hold-renew": ("hold", "renew", 1, "backup"),
    "hold-list": ("hold", "list", 1),
    "session-list": ("session", "list", 1),
    "session-forget": ("session", "forget", 1, "spark-write/*", "--owner", "owner-b"),
    "hold-release": ("hold", "release", 1, "backup"),
    "timestamps": ("timestamps", 1, 3),
    "transfer": ("transfer", 1),
    "shard-create": ("shard", "create"),
    "shard-show": ("shard", "show", 1),
    "shard-resolve": ("shard", "resolve", "orders"),
    "shard-set": ("shard", "set", 1, "--protect"),
    "shard-close": ("shard", "close", 1),
    "shard-delete": ("shard", "delete", 1, "--name", "orders", "--no-wait"),
    "shards": ("shards",),
    "stores": ("stores",),
    "store": ("store", "ADDRESS"),
    "store-log-level": ("store", "ADDRESS", "log-level"),
    "store-directory-drain": ("store", "s2", "directory", "drain", "/s2/a"),
    "store-log-level-set": ("store", "ADDRESS", "log-level", "debug", "--for", "10m"),
    "store-reload": ("store", "ADDRESS", "reload"),
    "store-reload-dry-run": ("store", "ADDRESS", "reload", "--dry-run"),
    "admit": ("admit", "s4", "--hakeeper"),
    "joining": ("joining", "by-verb"),
    "stores-drain": ("stores", "drain", "s2"),
    "stores-undrain": ("stores", "undrain", "s2"),
    "stores-read-only": ("stores", "read-only", "s2"),
    "stores-read-write": ("stores", "read-write", "s2"),
    "stores-forget": ("stores", "forget", "s2"),
    "stores-list": ("stores", "list"),
    "operators": ("operators",),
    "operators-list": ("operators", "list"),
    "operators-cancel": ("operators", "cancel", 7),
    "cluster-settings": ("cluster", "settings"),
    "cluster-set": ("cluster", "set", "--store-timeout", 60),
    "cluster-phase": ("cluster", "phase"),
    "cluster-repair-off": ("cluster", "repair-off", "s2", "--for", 60, "--reason", "a board"),
    "cluster-repair-on": ("cluster", "repair-on", "s2"),
    "shard-move": ("shard", "move", 1, "s1", "s2"),
    "shard-add-replica": ("shard", "add-replica", 1, "s2"),
    "shard-remove-replica": ("shard", "remove-replica", 1, "s2"),
    "shard-wishes": ("shard", "wishes"),
    "shard-cancel": ("shard", "cancel", 3),
    "shard-pin": ("shard", "pin", 1, "s2", "--for", 60),
    "shard-unpin": ("shard", "unpin", 1),
    "cluster-zones": ("cluster", "zones"),
    "cluster-rebalance": ("cluster", "rebalance"),
    "upgrade-raise": ("upgrade", "raise"),
    "acl-grant": ("acl", "grant", "i", "shard/1", "append"),
    "acl-revoke": ("acl", "revoke", "i", "shard/1", "append"),
    "acl-list": ("acl", "list"),
    "acl-deny": ("acl", "deny", "i*", "name/w*", "all"),
    "acl-undeny": ("acl", "undeny", "i*", "name/w*", "all"),
    "acl-check": ("acl", "check", "spiffe://d/cluster/c/client/i", 1, "append"),
    "quota-set": ("quota", "set", "i", "--bytes-per-s", 70_000),
    "quota-show": ("quota", "show"),
    "quota-show-one": ("quota", "show", "i"),
    "quota-clear": ("quota", "clear", "i"),
    "top": ("top",),
    "ids": ("ids", 3),
    "services": ("services",),
    "services-list": ("services", "list"),
    "services-order": ("services", "order", "cn-1", "reload"),
    "services-drain": ("services", "drain", "cn-1"),
    "services-undrain": ("services", "undrain", "cn-1"),
    "services-replayed": ("services", "replayed"),
    "tn": ("tn",),
    "tn-list": ("tn", "list"),
    "tn-create": ("tn", "create", "3"),
    "tn-delete": ("tn", "delete", "2"),
}


def ctl(
    server: Server, capture: pytest.CaptureFixture[str], *words: object, code: int = 0
) -> bytes:
    named = [server.address if word == "ADDRESS" else word for word in words]
    return printed(logctl, capture, "--endpoints", server.address, *named, code=code)


@pytest.mark.parametrize("name", COMMANDS)
def test_logctl(name: str, server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    check(f"logctl-{name}", ctl(server, capfd, *COMMANDS[name]))


def test_logctl_events(
    server: Server, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "time", SimpleNamespace(time=lambda: 1.7e9))
    check(
        "logctl-events",
        ctl(
            server,
            capfd,
            "events",
        ),
    )


def test_logctl_repairs(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    check("logctl-repairs", ctl(server, capfd, "repairs", code=exit_codes.NEGATIVE))


def test_logctl_stores_impact(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    """What it would cost is a finding."""
    found = ctl(server, capfd, "stores", "impact", "s1", "s2", code=exit_codes.NEGATIVE)
    check("logctl-stores-impact", found)


def test_logctl_upgrade_status(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    """The stores of the picture know the first version only."""
    found = ctl(server, capfd, "upgrade", "status", code=exit_codes.NEGATIVE)
    check("logctl-upgrade-status", found)


def test_logctl_shard_adopt(
    server: Server, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    report = tmp_path / "RECOVERED"
    report.write_text('[{"shard": 0, "membership": "00"}, {"shard": 7, "membership": "01"}]')
    words = ("shard", "adopt", report, "--i-know-records-may-be-lost", "ann")
    check("logctl-shard-adopt", ctl(server, capfd, *words))
    report.write_text("{}")
    ctl(server, capfd, *words, code=exit_codes.USAGE)


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


def test_logctl_waits_for_a_rebalance_that_has_begun_everything(
    server: Server, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is under way is no more to be begun, and it is not done either."""
    plans = iter(
        [
            hakeeper_pb2.BalancePlan(replicas_wished=True),
            hakeeper_pb2.BalancePlan(replicas_wished=True),
            hakeeper_pb2.BalancePlan(),
        ]
    )
    monkeypatch.setitem(ANSWERS, "PlanBalance", lambda: next(plans))
    argv = ["program", "--endpoints", server.address, "cluster", "rebalance", "--wait", "20s"]
    monkeypatch.setattr(sys, "argv", argv)
    with pytest.raises(SystemExit) as caught:
        exit_codes.run(logctl, "program")
    assert caught.value.code == 0
    [line] = capfd.readouterr().err.splitlines()
    assert line == "nothing is left to begin; HAKeeper ends it when what is under way is done"


def test_logctl_shows_a_shard_while_hakeeper_is_silent(
    server: Server, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a store's copy, which has no policy and no labels: none are shown, not wrong ones."""
    monkeypatch.setattr(server, "silent", True)
    argv = ["program", "--endpoints", server.address, "--timeout", "2", "shard", "show", "1"]
    monkeypatch.setattr(sys, "argv", [*argv, "-o", "json"])
    with pytest.raises(SystemExit) as caught:
        exit_codes.run(logctl, "program")
    shown = capfd.readouterr()
    assert caught.value.code == exit_codes.UNAVAILABLE
    assert json.loads(shown.err)["message"] == (
        "HAKeeper does not answer; as a store knew it 8 s ago"
    )
    check("logctl-shard-show-silent", shown.out.encode())


def test_every_command_of_logctl_is_here() -> None:
    lines = [" ".join(map(str, ("logctl", *words, ""))) for words in COMMANDS.values()]
    others = {path for path in LEAVES if not any(line.startswith(f"{path} ") for line in lines)}
    assert others == {
        "logctl apply",
        "logctl diff",
        "logctl doctor",
        "logctl events",
        "logctl export",
        "logctl identities",
        "logctl repairs",
        "logctl self-test",
        "logctl shard adopt",
        "logctl shard branch",
        "logctl stores impact",
        "logctl upgrade status",
    }


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
