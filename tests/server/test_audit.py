"""The audit log: what is in it, that it cannot be doctored unseen, and disks that are full."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

import grpc.aio
import pytest
from click.testing import CliRunner
from logservice_client import LogClient, Tls
from logservice_wire.errors import Busy, NotReady
from logservice_wire.v1 import log_pb2, log_pb2_grpc

from logservice import bounds
from logservice.bounds import (
    AUDIT_ADMIN_BYTES_PER_S,
    AUDIT_BURST_S,
    AUDIT_IDENTITIES_MAX,
    AUDIT_REPEAT_S,
    AUDIT_REPEATS_MAX,
    AUDIT_SHARDS_NAMED_MAX,
)
from logservice.cli.offline.audit_commands import audit as audit_command
from logservice.server.audit import chain as audit_chain
from logservice.server.audit import trail as audit_module
from logservice.server.audit.chain import Anchor, Trail, files_of, verify
from logservice.server.audit.flooding import Shares
from logservice.server.audit.log import AuditLog
from tests.papers import Papers, uri
from tests.server.secured import ADMIN, CLIENTS, OWNER, channel_of, lay_out, papers_of, secured


def opened(directory: Path, **options: int) -> AuditLog:
    log = AuditLog(directory, "s1", **options)  # type: ignore[arg-type]
    log.open()
    return log


def lines(directory: Path, trail: Trail = Trail.CALLS) -> list[dict[str, object]]:
    return [
        json.loads(line)
        for path in files_of(directory, trail)
        for line in path.read_text().splitlines()
    ]


def told(directory: Path, trail: Trail = Trail.CALLS) -> list[dict[str, object]]:
    """The lines without what the trail says of itself."""
    return [line for line in lines(directory, trail) if not str(line["what"]).startswith("audit.")]


def torn(directory: Path, data: bytes) -> None:
    with files_of(directory, Trail.CALLS)[-1].open("ab") as file:
        file.write(data)


def written(directory: Path, count: int = 20, **options: int) -> None:
    log = opened(directory, **options)
    for number in range(count):
        log.record({"what": "Append", "number": number})
    log.close()


def test_the_chain_goes_on_over_restarts(tmp_path: Path) -> None:
    """INV-AUDIT-1, in one file: somebody who makes a store start again and again pushes no line
    out.
    """
    for _ in range(3):
        written(tmp_path)
    found = verify(tmp_path, Trail.CALLS)
    assert found.ok, found.damages
    assert (found.files, found.lines, found.last_seq) == (1, 66, 66)
    assert [line["seq"] for line in lines(tmp_path)] == list(range(1, 67))
    assert found.closed


def test_files_are_the_owners_only(tmp_path: Path) -> None:
    written(tmp_path / "a" / "b")
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700
    for path in files_of(tmp_path / "a" / "b", Trail.CALLS):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_rotation_keeps_the_newest(tmp_path: Path) -> None:
    """Reaches AUDIT_FILE_BYTES_MAX and AUDIT_FILES_MAX, made small."""
    log = opened(tmp_path, file_bytes_max=4096, files_max=3)
    for number in range(400):
        log.record({"what": "Append", "number": number})
        if number % 20 == 0:
            log._calls._queue.put(({"what": "x"}, None))
            while not log._calls._queue.empty():
                pass
    log.close()
    found = verify(tmp_path, Trail.CALLS)
    assert found.ok, found.damages
    assert found.files == 3
    assert found.first_seq > 1
    old = Anchor(Trail.CALLS, 1, "0" * 64)
    new = Anchor(Trail.CALLS, found.last_seq, found.last_hash)
    assert not verify(tmp_path, Trail.CALLS, [old]).ok, "nothing links what is there to it"
    assert verify(tmp_path, Trail.CALLS, [old, new]).ok


@pytest.mark.parametrize("torn", [b"{", b'{"at":"2026', b"\x00" * 40])
def test_a_crash_in_the_middle_of_a_line(tmp_path: Path, torn: bytes) -> None:
    written(tmp_path)
    with files_of(tmp_path, Trail.CALLS)[-1].open("ab") as file:
        file.write(torn)
    found = verify(tmp_path, Trail.CALLS)
    assert found.ok
    assert found.torn_bytes == len(torn)
    written(tmp_path)
    found = verify(tmp_path, Trail.CALLS)
    assert found.ok, found.damages
    # Torn bytes without a line that tells of them are damage.
    with files_of(tmp_path, Trail.CALLS)[0].open("ab") as file:
        file.write(torn)
    assert not verify(tmp_path, Trail.CALLS).ok


def test_a_crash_before_the_first_line(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / audit_chain.file_name(Trail.CALLS, 2)).touch()
    written(tmp_path)
    assert verify(tmp_path, Trail.CALLS).ok


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
        "changed",
        "removed",
        "swapped",
        "doubled",
        "empty-object",
        "no-object",
        "empty-line",
        "spaces",
        "renumbered",
        "first-removed",
        "garbage",
        "text-for-a-number",
    ],
)
def test_doctored_files_are_found(tmp_path: Path, change: Change) -> None:
    written(tmp_path)
    written(tmp_path)
    first = files_of(tmp_path, Trail.CALLS)[0]
    before = first.read_bytes().splitlines()
    first.write_bytes(b"\n".join(change(before)) + b"\n")
    assert not verify(tmp_path, Trail.CALLS).ok


def test_a_chain_that_was_computed_anew_from_the_middle_meets_its_anchor(tmp_path: Path) -> None:
    written(tmp_path)
    known = lines(tmp_path)[10]
    anchor = Anchor(Trail.CALLS, int(str(known["seq"])), str(known["hash"]))
    assert verify(tmp_path, Trail.CALLS, [anchor]).ok
    kept = lines(tmp_path)[:5]
    before, data = str(kept[-1]["hash"]), b""
    for number in range(6, 22):
        line, before = audit_chain.seal({"what": "nothing to see here"}, number, before)
        data += line
    path = files_of(tmp_path, Trail.CALLS)[0]
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:5]) + data)
    assert verify(tmp_path, Trail.CALLS).ok, "the chain alone cannot know"
    assert not verify(tmp_path, Trail.CALLS, [anchor]).ok


def test_a_cut_end_meets_its_anchor(tmp_path: Path) -> None:
    written(tmp_path)
    found = verify(tmp_path, Trail.CALLS)
    path = files_of(tmp_path, Trail.CALLS)[0]
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    assert verify(tmp_path, Trail.CALLS).ok
    known = Anchor(Trail.CALLS, found.last_seq, found.last_hash)
    assert not verify(tmp_path, Trail.CALLS, [known]).ok


def in_files(directory: Path, count: int) -> list[Path]:
    """A trail of so many files without a rotation, as a store leaves it that is killed while it
    writes a line.
    """
    for number in range(count):
        written(directory)
        if number < count - 1:
            torn(directory, b"{")
    found = files_of(directory, Trail.CALLS)
    assert len(found) == count
    assert verify(directory, Trail.CALLS).ok
    return found


@pytest.mark.parametrize(
    "removed",
    [[0], [1], [0, 1], [0, 1, 2], [2], [1, 2]],
    ids=["oldest", "middle", "two-oldest", "all-but-the-last", "third", "two-in-the-middle"],
)
def test_a_removed_file_is_found(tmp_path: Path, removed: list[int]) -> None:
    files = in_files(tmp_path, 4)
    for number in removed:
        files[number].unlink()
    found = verify(tmp_path, Trail.CALLS)
    assert not found.ok
    # The store that goes on does not forget what is missing.
    written(tmp_path)
    assert not verify(tmp_path, Trail.CALLS).ok


def test_removed_ends_meet_an_anchor(tmp_path: Path) -> None:
    files = in_files(tmp_path, 3)
    before = verify(tmp_path, Trail.CALLS)
    known = Anchor(Trail.CALLS, before.last_seq, before.last_hash)
    files[-1].unlink()
    assert not verify(tmp_path, Trail.CALLS, [known]).ok
    for path in files[:-1]:
        path.unlink()
    assert not verify(tmp_path, Trail.CALLS, [known]).ok
    # A store that starts with nothing makes a new trail. It is whole, but not the known one.
    written(tmp_path, 100)
    assert verify(tmp_path, Trail.CALLS).ok
    assert not verify(tmp_path, Trail.CALLS, [known]).ok


def test_renamed_files_are_found(tmp_path: Path) -> None:
    files = in_files(tmp_path, 3)
    files[0].unlink()
    files[1].rename(files[0])
    files[2].rename(files[1])
    assert not verify(tmp_path, Trail.CALLS).ok


def test_files_of_the_other_trail_are_no_stand_in(tmp_path: Path) -> None:
    written(tmp_path)
    (calls,), (administration,) = (files_of(tmp_path, one) for one in reversed(Trail))
    administration.unlink()
    assert not verify(tmp_path, Trail.ADMINISTRATION).ok
    result = CliRunner().invoke(audit_command, ["verify", str(tmp_path)], standalone_mode=False)
    assert result.return_value == 1
    calls.unlink()
    result = CliRunner().invoke(audit_command, ["verify", str(tmp_path)], standalone_mode=False)
    assert result.return_value == 1, "a folder without files is not a whole trail"
    assert "holds no line of the trail" in result.output


def test_a_trail_says_how_it_ended(tmp_path: Path) -> None:
    written(tmp_path)
    assert verify(tmp_path, Trail.CALLS).closed
    path = files_of(tmp_path, Trail.CALLS)[0]
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    found = verify(tmp_path, Trail.CALLS)
    assert found.ok, "a crash looks like this, too"
    assert not found.closed


def test_a_store_starts_behind_a_damaged_log_and_the_break_stays(tmp_path: Path) -> None:
    written(tmp_path)
    path = files_of(tmp_path, Trail.CALLS)[0]
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]) + b"garbage\n")
    written(tmp_path)
    assert not verify(tmp_path, Trail.CALLS).ok


def test_the_command(tmp_path: Path) -> None:
    written(tmp_path)
    result = CliRunner().invoke(audit_command, ["verify", str(tmp_path), "-o", "json"])
    found = json.loads(result.output)
    assert found["ok"]
    assert found["calls"]["lines"] == 22
    anchor = found["calls"]["anchor"]
    again = CliRunner().invoke(
        audit_command, ["verify", str(tmp_path), "--anchor", anchor], standalone_mode=False
    )
    assert again.return_value == 0


DENIAL = {"who": "a", "what": "Append", "decision": "denied", "reason": "PERMISSION_DENIED"}


def test_the_same_denial_is_one_line_with_a_count(tmp_path: Path) -> None:
    """The shard that it names and the address that it comes from make no difference."""
    log = opened(tmp_path)
    for number in range(1000):
        log.deny({**DENIAL, "shard": number % 40, "from": f"ipv4:127.0.0.1:{number}"})
    log.deny({**DENIAL, "who": "b", "shard": 1})
    log.close()
    first, other, folded = told(tmp_path)
    assert (first["who"], first["shard"], "count" in first) == ("a", 0, False)
    assert (other["who"], "count" in other) == ("b", False)
    assert (folded["who"], folded["count"]) == ("a", 999)
    assert folded["shards"] == [*range(1, 1 + AUDIT_SHARDS_NAMED_MAX)]
    assert folded["more_shards"]
    assert str(first["at"]) <= str(folded["first"]) <= str(folded["last"])


def test_a_count_is_written_when_its_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The count does not wait for the next denial."""
    monkeypatch.setattr("logservice.bounds.AUDIT_REPEAT_S", 0.01)
    log = opened(tmp_path)
    for _ in range(3):
        log.deny(DENIAL)
    deadline = time.monotonic() + 60
    while not any("count" in line for line in lines(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sum(int(str(line.get("count", 1))) for line in told(tmp_path)) == 3
    log.close()


def test_many_different_denials_are_bounded(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for number in range(5000):
        log.deny({**DENIAL, "who": str(number), "shard": 1})
    assert len(log._folding) == AUDIT_REPEATS_MAX + 1
    log.close()
    found = told(tmp_path)
    assert len(found) == AUDIT_REPEATS_MAX + 1
    assert (found[-1]["who"], found[-1]["count"]) == ("others", 5000 - AUDIT_REPEATS_MAX)


def test_one_identity_fills_no_more_than_its_share(tmp_path: Path) -> None:
    """INV-AUDIT-2, with data calls; what the identity is denied is seen beside them."""
    log = opened(tmp_path, identity_bytes_per_s=1024)
    share = 1024 * AUDIT_BURST_S
    for number in range(2000):
        log.record({"who": "greedy", "what": "Append", "decision": "allowed", "number": number})
    log.record({"who": "other", "what": "Append", "decision": "allowed"})
    log.deny({**DENIAL, "who": "greedy"})
    log.close()
    found = lines(tmp_path)
    assert verify(tmp_path, Trail.CALLS).ok
    size = sum(path.stat().st_size for path in files_of(tmp_path, Trail.CALLS))
    assert share / 4 < size < share * 1.2
    (left_out,) = [line for line in found if line["what"] == "audit.left_out"]
    kept = [line for line in found if line.get("who") == "greedy" and "number" in line]
    assert int(str(left_out["count"])) + len(kept) == 2000
    assert any(line.get("who") == "other" for line in found)
    assert any(line.get("decision") == "denied" for line in found)


def test_shares_grow_again_and_are_bounded() -> None:
    shares = Shares(100.0)
    line: dict[str, object] = {"who": "a", "what": "x" * 100}
    taken = 0
    while shares.take(line, 0.0):
        taken += 1
    assert 1 <= taken <= 100 * AUDIT_BURST_S / 100
    assert not shares.take(line, 0.1)
    assert shares.take(line, 10.0)
    for number in range(2 * AUDIT_IDENTITIES_MAX):
        shares.within([{"who": str(number)}] * 20, 10.0)
    assert len(shares._shares) <= AUDIT_IDENTITIES_MAX + 1
    told = shares.within([], 10.0 + AUDIT_REPEAT_S)
    assert {line["what"] for line in told} == {"audit.left_out"}
    assert told[-1]["who"] == "others"
    shares.within([{"who": "new"}], 1000.0)
    assert len(shares._shares) == 1, "whose share is whole again is forgotten"


async def test_administration_is_pushed_out_by_nobody(tmp_path: Path) -> None:
    """Neither denials and data calls of others nor one identity's calls of administration push it
    out.
    """
    log = opened(tmp_path, file_bytes_max=4096, files_max=2)
    await log.admit({"who": "admin", "what": "ChangeAccess", "request": "the line"})
    for number in range(3000):
        log.deny({**DENIAL, "who": f"x{number % 300}", "what": f"{number}"})
        log.record({"who": f"x{number % 300}", "what": "Append", "decision": "allowed"})
    admitted = 0
    with pytest.raises(Busy):
        for _ in range(10_000):
            await log.admit({"who": "greedy", "what": "CreateShard", "request": "x" * 1000})
            admitted += 1
    assert admitted * 1000 * 2 <= AUDIT_ADMIN_BYTES_PER_S * AUDIT_BURST_S
    await log.admit({"who": "admin", "what": "ChangeAccess", "request": "still"})
    log.close()
    assert verify(tmp_path, Trail.ADMINISTRATION).ok
    assert verify(tmp_path, Trail.CALLS).ok
    assert len(files_of(tmp_path, Trail.CALLS)) == 2
    assert {line["what"] for line in told(tmp_path, Trail.ADMINISTRATION)} <= {
        "ChangeAccess",
        "CreateShard",
    }


def test_what_stores_are_refused_is_written(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for _ in range(10):
        log.peer("store-9", "hakeeper.propose", reason="enrolled")
    log.peer("store-9", "hakeeper.join", reason="")
    log.close()
    first, joined, folded = told(tmp_path)
    assert (first["who"], first["decision"], first["reason"]) == (
        "store/store-9",
        "denied",
        "enrolled",
    )
    assert (joined["what"], joined["decision"]) == ("hakeeper.join", "allowed")
    assert folded["count"] == 9


async def test_a_full_disk_refuses_administration_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_module, "_RETRY_S", 0.01)
    log = opened(tmp_path)
    await log.admit({"what": "ChangeAccess"})
    full = True
    real = os.write

    def write(descriptor: int, data: bytes) -> int:
        if full and descriptor == log._administration._descriptor:
            real(descriptor, bytes(data[:7]))  # half of the line is there
            raise OSError(28, "No space left on device")
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", write)
    log.record({"what": "TransferLeader"}, admin=True)
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
    assert verify(tmp_path, Trail.ADMINISTRATION).ok
    assert [line["what"] for line in told(tmp_path, Trail.ADMINISTRATION)] == [
        "ChangeAccess",
        "TransferLeader",
        "ChangeAccess",
    ]


async def test_a_full_queue_counts_data_and_refuses_administration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logservice.bounds.AUDIT_QUEUE_LINES_MAX", 4)
    log = AuditLog(tmp_path, "s1")
    for _ in range(6):
        log.record({"what": "Append"})
        log.record({"what": "TransferLeader"}, admin=True)
    assert log.lost == 4
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
    assert verify(directory, Trail.CALLS).ok
    found = lines(directory)
    changes = [line for line in found if line["what"] == "ChangeAccess"]
    assert changes == []
    changes = told(directory, Trail.ADMINISTRATION)
    assert verify(directory, Trail.ADMINISTRATION).ok
    assert {line["what"] for line in changes} == {"ChangeAccess"}
    assert [line.get("outcome") for line in changes] == [None, "ok"]
    assert changes[0]["who"] == ADMIN
    assert 'grant: "read"' in str(changes[0]["request"])
    appended = [line for line in found if line["what"] == "AppendShards"]
    assert [(line["first_lsn"], line["last_lsn"]) for line in appended] == [(1, 2)]
    read = next(line for line in found if line["what"] == "Read" and line.get("outcome") == "ok")
    assert (read["first_lsn"], read["last_lsn"]) == (1, 2)
    truncated = next(line for line in found if line["what"] == "Truncate")
    assert truncated["last_lsn"] == 1
    denied = [line for line in found if line.get("decision") == "denied"]
    assert [(line["who"], line["what"], line.get("shard")) for line in denied][:1] == [
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
    assert told(tmp_path / "data" / "audit") == []


def test_so_many_lines_are_written_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "AUDIT_BATCH_LINES_MAX", 3)
    log = AuditLog(tmp_path, "s1")
    for number in range(10):
        log._calls.put({"what": "x", "number": number})
    sizes: list[int] = []
    persist = log._calls._persist

    def watched(found: list[dict[str, object]], *, sync: bool, going: bool) -> None:
        sizes.append(sum(line["what"] == "x" for line in found))
        persist(found, sync=sync, going=going)

    monkeypatch.setattr(log._calls, "_persist", watched)
    log.open()
    log.close()
    assert [size for size in sizes if size] == [3, 3, 3, 1]
    assert [line["number"] for line in told(tmp_path)] == list(range(10))
