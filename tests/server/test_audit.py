"""The audit log: what is in it, that it cannot be doctored unseen, and disks that are full."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import grpc.aio
import pytest
from click.testing import CliRunner
from logservice_client import LogClient, Tls
from logservice_wire.errors import NotReady
from logservice_wire.v1 import log_pb2, log_pb2_grpc

from logservice.cli.audit_commands import audit as audit_command
from logservice.server import audit as audit_module
from logservice.server import audit_chain
from logservice.server.audit import AuditLog
from logservice.server.audit_chain import Anchor, files_of, verify
from tests.papers import Papers, uri
from tests.server.secured import ADMIN, CLIENTS, OWNER, channel_of, lay_out, papers_of, secured


def opened(directory: Path, **options: int) -> AuditLog:
    log = AuditLog(directory, "s1", **options)  # type: ignore[arg-type]
    log.open()
    return log


def lines(directory: Path) -> list[dict[str, object]]:
    return [
        json.loads(line) for path in files_of(directory) for line in path.read_text().splitlines()
    ]


def written(directory: Path, count: int = 20, **options: int) -> None:
    log = opened(directory, **options)
    for number in range(count):
        log.record({"what": "Append", "number": number})
    log.close()


def test_the_chain_goes_on_over_restarts(tmp_path: Path) -> None:
    for _ in range(3):
        written(tmp_path)
    found = verify(tmp_path)
    assert found.ok, found.damages
    assert (found.files, found.lines, found.last_seq) == (3, 63, 63)
    assert [line["seq"] for line in lines(tmp_path)] == list(range(1, 64))


def test_files_are_the_owners_only(tmp_path: Path) -> None:
    written(tmp_path / "a" / "b")
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700
    for path in files_of(tmp_path / "a" / "b"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_rotation_keeps_the_newest(tmp_path: Path) -> None:
    log = opened(tmp_path, file_bytes_max=4096, files_max=3)
    for number in range(400):
        log.record({"what": "Append", "number": number})
        if number % 20 == 0:
            log._queue.put(({"what": "x"}, None))
            while not log._queue.empty():
                pass
    log.close()
    found = verify(tmp_path)
    assert found.ok, found.damages
    assert found.files == 3
    assert found.first_seq > 1
    assert verify(tmp_path, [Anchor(1, "0" * 64)]).ok, "what was rotated away cannot be checked"


@pytest.mark.parametrize("torn", [b"{", b'{"at":"2026', b"\x00" * 40])
def test_a_crash_in_the_middle_of_a_line(tmp_path: Path, torn: bytes) -> None:
    written(tmp_path)
    with files_of(tmp_path)[-1].open("ab") as file:
        file.write(torn)
    found = verify(tmp_path)
    assert found.ok
    assert found.torn_bytes == len(torn)
    written(tmp_path)
    found = verify(tmp_path)
    assert found.ok, found.damages
    # Torn bytes that nobody told of are damage.
    with files_of(tmp_path)[0].open("ab") as file:
        file.write(torn)
    assert not verify(tmp_path).ok


def test_a_crash_before_the_first_line(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / audit_chain.file_name(2)).touch()
    written(tmp_path)
    assert verify(tmp_path).ok


Change = Callable[[list[bytes]], list[bytes]]


@pytest.mark.parametrize(
    "change",
    [
        lambda all_: [*all_[:5], all_[5].replace(b'"number":4', b'"number":5'), *all_[6:]],
        lambda all_: [*all_[:5], *all_[6:]],
        lambda all_: [*all_[:5], all_[6], all_[5], *all_[7:]],
        lambda all_: [*all_[:5], all_[4], *all_[5:]],
        lambda all_: [*all_[:5], b"{}", *all_[5:]],
        lambda all_: [*all_[:5], b"[]", *all_[5:]],
        lambda all_: [*all_[:5], b"", *all_[5:]],
        lambda all_: [*all_[:5], all_[5].replace(b":", b": ", 1), *all_[6:]],
        lambda all_: [*all_[:5], all_[5].replace(b'"seq":6', b'"seq":7'), *all_[6:]],
        lambda all_: all_[1:],
        lambda all_: [*all_[:5], b"x" * 70_000, *all_[6:]],
        lambda all_: [*all_[:5], all_[5].replace(b'"seq":6', b'"seq":"6"'), *all_[6:]],
    ],
    ids=[
        "changed", "removed", "swapped", "doubled", "empty-object", "no-object", "empty-line",
        "spaces", "renumbered", "first-removed", "garbage", "text-for-a-number",
    ],
)  # fmt: skip
def test_doctored_files_are_found(tmp_path: Path, change: Change) -> None:
    written(tmp_path)
    written(tmp_path)
    first = files_of(tmp_path)[0]
    before = first.read_bytes().splitlines()
    first.write_bytes(b"\n".join(change(before)) + b"\n")
    assert not verify(tmp_path).ok


def test_a_chain_that_was_computed_anew_from_the_middle_meets_its_anchor(tmp_path: Path) -> None:
    written(tmp_path)
    known = lines(tmp_path)[10]
    anchor = Anchor(int(str(known["seq"])), str(known["hash"]))
    assert verify(tmp_path, [anchor]).ok
    kept = lines(tmp_path)[:5]
    before, data = str(kept[-1]["hash"]), b""
    for number in range(6, 22):
        line, before = audit_chain.seal({"what": "nothing to see here"}, number, before)
        data += line
    path = files_of(tmp_path)[0]
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:5]) + data)
    assert verify(tmp_path).ok, "the chain alone cannot know"
    assert not verify(tmp_path, [anchor]).ok


def test_a_cut_end_meets_its_anchor(tmp_path: Path) -> None:
    written(tmp_path)
    found = verify(tmp_path)
    path = files_of(tmp_path)[0]
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    assert verify(tmp_path).ok
    assert not verify(tmp_path, [Anchor(found.last_seq, found.last_hash)]).ok


def test_a_removed_file_is_found(tmp_path: Path) -> None:
    for _ in range(3):
        written(tmp_path)
    files_of(tmp_path)[1].unlink()
    assert not verify(tmp_path).ok


def test_a_store_starts_behind_a_damaged_log_and_the_break_stays(tmp_path: Path) -> None:
    written(tmp_path)
    path = files_of(tmp_path)[0]
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]) + b"garbage\n")
    written(tmp_path)
    assert not verify(tmp_path).ok


def test_the_command(tmp_path: Path) -> None:
    written(tmp_path)
    result = CliRunner().invoke(audit_command, ["verify", str(tmp_path), "-o", "json"])
    found = json.loads(result.output)
    assert found["ok"]
    assert found["lines"] == 21
    anchor = f"{found['last_seq']}:{found['last_hash']}"
    again = CliRunner().invoke(
        audit_command, ["verify", str(tmp_path), "--anchor", anchor], standalone_mode=False
    )
    assert again.return_value == 0


def test_the_same_denial_is_one_line_with_a_count(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for _ in range(1000):
        log.deny({"who": "a", "what": "Append", "shard": 1, "reason": "PERMISSION_DENIED"})
    log.deny({"who": "b", "what": "Append", "shard": 1, "reason": "PERMISSION_DENIED"})
    log.close()
    denials = [(line["who"], line.get("count", 1)) for line in lines(tmp_path)[1:]]
    assert denials == [("a", 1), ("b", 1), ("a", 999)]


def test_many_different_denials_are_bounded(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for number in range(5000):
        log.deny({"who": str(number), "what": "Append", "shard": 1, "reason": "x"})
    assert len(log._repeats) <= 1024
    log.close()
    assert len(lines(tmp_path)) == 5001


async def test_a_full_disk_refuses_administration_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_module, "_RETRY_S", 0.01)
    log = opened(tmp_path)
    await log.admit({"what": "ChangeAccess"})
    full = True
    real = os.write

    def write(descriptor: int, data: bytes) -> int:
        if full and descriptor == log._descriptor:
            real(descriptor, bytes(data[:7]))  # half of it is there
            raise OSError(28, "No space left on device")
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", write)
    log.record({"what": "Append"})
    async with asyncio.timeout(60):
        while not log.failed:  # noqa: ASYNC110 - a thread sets it
            await asyncio.sleep(0.01)
    assert "No space left" in log.alarms()[0]
    with pytest.raises(NotReady):
        await log.admit({"what": "ChangeAccess"})
    full = False
    async with asyncio.timeout(60):
        while log.failed:  # noqa: ASYNC110 - a thread sets it
            await asyncio.sleep(0.01)
    await log.admit({"what": "ChangeAccess"})
    log.close()
    assert verify(tmp_path).ok
    assert [line["what"] for line in lines(tmp_path)[1:]] == [
        "ChangeAccess", "Append", "ChangeAccess",
    ]  # fmt: skip


async def test_a_full_queue_counts_data_and_refuses_administration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logservice.bounds.AUDIT_QUEUE_LINES_MAX", 4)
    log = AuditLog(tmp_path, "s1")
    for _ in range(6):
        log.record({"what": "Append"})
    assert log.lost == 2
    with pytest.raises(NotReady, match="behind"):
        await log.admit({"what": "ChangeAccess"})
    log.open()
    log.close()
    assert any(line["what"] == "audit.lost" and line["count"] == 2 for line in lines(tmp_path))


async def test_what_a_store_writes(tmp_path: Path) -> None:
    lay_out(tmp_path)

    def client_of(papers: Papers) -> LogClient:
        return LogClient(store.client_address, tls=Tls(CLIENTS.pem, papers.certificate, papers.key))

    async with secured(tmp_path, "[audit]\ndata = true") as store:
        async with client_of(OWNER) as client:
            shard = client.shard(1)
            assert await shard.append([b"a", b"b"]) == 1
            await shard.read(1)
            await client.hakeeper.change_access(uri("client", "x"), "shard/1", grant=["read"])
            await shard.truncate(1)
        async with channel_of(store, papers_of("nobody")) as channel:
            log = log_pb2_grpc.LogStub(channel)
            for _ in range(3):
                with pytest.raises(grpc.aio.AioRpcError):
                    await log.Read(
                        log_pb2.ReadRequest(shard_id=1, lsn=1), metadata=[("x-request-id", "r-7")]
                    )
    directory = tmp_path / "data" / "audit"
    assert verify(directory).ok
    found = lines(directory)
    changes = [line for line in found if line["what"] == "ChangeAccess"]
    assert [line.get("outcome") for line in changes] == [None, "ok"]
    assert changes[0]["who"] == ADMIN
    assert 'grant: "read"' in str(changes[0]["request"])
    appended = [line for line in found if line["what"] == "AppendStream"]
    assert [(line["first_lsn"], line["last_lsn"]) for line in appended] == [(1, 2)]
    read = next(line for line in found if line["what"] == "Read" and line.get("outcome") == "ok")
    assert (read["first_lsn"], read["last_lsn"]) == (1, 2)
    truncated = next(line for line in found if line["what"] == "Truncate")
    assert truncated["last_lsn"] == 1
    denied = [line for line in found if line.get("decision") == "denied"]
    assert [(line["who"], line["what"], line["shard"]) for line in denied][:1] == [
        (uri("client", "nobody"), "Read", 1)
    ]
    assert sum(int(str(line.get("count", 1))) for line in denied) == 3
    assert denied[0]["request_id"] == "r-7"
    assert str(denied[0]["from"]).startswith("ipv4:127.0.0.1:")


async def test_data_calls_are_not_written_unless_wanted(tmp_path: Path) -> None:
    lay_out(tmp_path)
    async with secured(tmp_path) as store:
        tls = Tls(CLIENTS.pem, OWNER.certificate, OWNER.key)
        async with LogClient(store.client_address, tls=tls) as client:
            await client.shard(1).append(b"a")
    assert {line["what"] for line in lines(tmp_path / "data" / "audit")} == {audit_chain.OPENED}
