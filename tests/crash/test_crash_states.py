"""Crash states of recorded system calls: one scenario runs here, all of them in ``make crash``. The
other tests are of the tester itself.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.crash.campaign import run, work_directory
from tests.crash.disk import Disk, Unknown
from tests.crash.perform import Performer
from tests.crash.scenarios import SCENARIOS, script_of
from tests.crash.states import states
from tests.crash.trace import SYNC_WRITTEN, Call, calls

needs_strace = pytest.mark.skipif(
    shutil.which("strace") is None, reason="strace is not installed; `make strace` installs it"
)


@pytest.fixture
def work() -> Iterator[Path]:
    path = work_directory()
    yield path
    shutil.rmtree(path)


@needs_strace
def test_every_crash_state_of_making_a_store(work: Path) -> None:
    outcome = run("create", work)
    assert outcome.failures == []
    assert outcome.states > 200


@needs_strace
def test_no_batch_of_leveldb_is_lost_between_others(work: Path) -> None:
    """Without an fsync of the directory after opening, LevelDB's removed log could stay on the disk
    while its new CURRENT was lost. Then a checkpoint vanished, and later ones did not.
    """
    outcome = run("create", work, pairs=True)
    assert outcome.failures == []
    assert outcome.states > 300


@needs_strace
@pytest.mark.parametrize("left_out", ["fdatasync", "write_durably", "fsync_directory"])
def test_the_tester_notices_a_skipped_sync(work: Path, left_out: str) -> None:
    outcome = run("create", work, without=left_out, failures_max=1)
    assert len(outcome.failures) == 1
    assert "python -m tests.crash --replay create:" in outcome.failures[0]


@pytest.mark.parametrize("name", [*SCENARIOS, "random-7"])
def test_a_scenario_is_the_same_every_time(name: str) -> None:
    one, other = script_of(name), script_of(name)
    assert one.steps == other.steps
    assert len(one.expected) == len(one.steps) + 1


def test_the_scenario_that_recycles_does_and_begins_groups_ahead(tmp_path: Path) -> None:
    script = script_of("recycling")
    performer = Performer(str(tmp_path), script)
    recycled = 0
    for number, (step, following) in enumerate(pairwise([*script.steps, None])):
        assert step is not None
        performer.perform(step, following)
        performer.judge(number + 1)
        recycled = max(recycled, performer.store.stats().segments_recycled)
    performer.close()
    assert performer.begun_ahead > 10
    assert recycled > 3


def call(name: str, arguments: str, *texts: bytes, result: int = 0, started: int = 1 << 30) -> Call:
    return Call(name, arguments, texts, result, started)


def write(data: bytes, offset: int) -> Call:
    return call("pwrite64", f'3, "", {len(data)}, {offset}', data, result=len(data))


def with_file(synced: bool = True) -> Disk:
    disk = Disk("/d", lambda _: False)
    disk.follow(call("openat", 'AT_FDCWD, "", O_RDWR|O_CREAT, 0640', b"/d/a", result=3))
    disk.follow(call("openat", 'AT_FDCWD, "", O_RDONLY', b"/d", result=4))
    if synced:
        disk.follow(call("fsync", "4"))
    return disk


def test_what_is_synced_survives_and_nothing_else_must() -> None:
    disk = with_file()
    disk.follow(write(b"old.", 0))
    disk.follow(call("fdatasync", "3"))
    disk.follow(write(b"new!", 2))
    assert disk.cache() == {"a": b"olnew!"}
    found = dict(states(disk))
    assert found["none"] == {"a": b"old."}
    assert found["torn2"] == {"a": b"olne"}
    assert found["drop-1"] == {"a": b"old."}


def test_a_name_needs_a_sync_of_its_directory() -> None:
    disk = with_file(synced=False)
    disk.follow(write(b"data", 0))
    disk.follow(call("fsync", "3"))
    found = dict(states(disk))
    assert found["none"] == {}
    assert found["names"] == {"a": b"data"}
    disk.follow(call("rename", '"", ""', b"/d/a", b"/d/b"))
    disk.follow(call("fdatasync", "4"))
    disk.follow(call("unlink", '""', b"/d/b"))
    found = dict(states(disk))
    assert found["none"] == {"b": b"data"}
    assert found["kill"] == {}


def test_a_sync_does_not_cover_what_was_written_while_it_ran() -> None:
    disk = with_file()
    disk.follow(write(b"late", 0))
    disk.follow(call("fdatasync", "3", started=3))
    assert dict(states(disk))["none"] == {"a": b""}


def synced_write(data: bytes, offset: int, result: int, started: int = 1 << 30) -> list[Call]:
    """The two calls that `calls` gives for a pwritev2 with RWF_DSYNC."""
    arguments = f'3, [{{iov_base="", iov_len={len(data)}}}], 1, {offset}, RWF_DSYNC'
    first = call("pwritev2", arguments, data, result=result, started=started)
    return [first, call(SYNC_WRITTEN, arguments, started=started)]


def test_a_write_with_its_own_sync_is_torn_before_and_durable_after() -> None:
    disk = with_file()
    disk.follow(call("fallocate", "3, 0, 0, 6"))
    write_half, sync_half = synced_write(b"new!", 2, 4)
    assert disk.follow(write_half)
    found = dict(states(disk))
    assert found["none"] == {"a": b""}
    assert found["torn2"] == {"a": b"\0\0ne\0\0"}
    assert found["drop-2"] == {"a": b"\0\0new!"}
    assert disk.follow(sync_half)
    assert not disk.pending
    assert dict(states(disk))["none"] == {"a": b"\0\0new!"}


def test_a_write_with_its_own_sync_covers_no_other_write() -> None:
    """Log storage never makes such calls, so the model refuses them."""
    disk = with_file()
    disk.follow(write(b"x", 9))
    write_half, sync_half = synced_write(b"new!", 2, 4)
    disk.follow(write_half)
    with pytest.raises(Unknown, match="beside"):
        disk.follow(sync_half)


def test_a_size_that_came_while_it_ran_is_not_covered() -> None:
    disk = with_file()
    disk.follow(call("fallocate", "3, 0, 0, 9"))
    write_half, sync_half = synced_write(b"new!", 0, 4, started=3)
    disk.follow(write_half)
    disk.follow(sync_half)
    assert [change.offset for change in disk.pending] == [9]
    assert dict(states(disk))["none"] == {"a": b"new!"}


@pytest.mark.parametrize(
    ("line", "names"),
    [
        (
            'pwritev2(3, [{iov_base="\\x61", iov_len=1}], 1, 4096, RWF_DSYNC) = 1',
            ["pwritev2", SYNC_WRITTEN, "fsync"],
        ),
        (
            'pwritev2(3, [{iov_base="\\x61", iov_len=1}], 1, 4096, RWF_DSYNC) = -1 EIO (I/O)',
            ["pwritev2", "fsync"],
        ),
        ('pwritev2(3, [{iov_base="\\x61", iov_len=1}], 1, 4096, 0) = 1', ["pwritev2", "fsync"]),
    ],
)
def test_a_write_with_its_own_sync_is_given_in_two_halves(
    tmp_path: Path, line: str, names: list[str]
) -> None:
    trace = tmp_path / "trace"
    trace.write_text(f"1 {line}\n1 fsync(3) = 0\n")
    found = list(calls(trace))
    assert [one.name for one in found] == names
    assert [one.started for one in found] == [0] * (len(names) - 1) + [len(names) - 1]
    assert found[0].number(-2) == 4096
    assert found[0].strings == (b"a",)


def test_pages_of_a_write_are_written_in_any_order() -> None:
    disk = with_file()
    disk.follow(write(b"x" * 512 + b"y" * 512, 0))
    assert dict(states(disk))["tail"] == {"a": bytes(512) + b"y" * 512}


def test_pairs_of_changes_are_dropped_when_asked_for() -> None:
    disk = with_file()
    for offset in range(3):
        disk.follow(write(b"%d" % offset, offset))
    trees = [tree for name, tree in states(disk, pairs=True) if name.startswith("pair")]
    assert sorted(trees, key=str) == [{"a": b"0"}, {"a": b"\x001"}, {"a": b"\x00\x002"}]


def test_a_call_that_cannot_be_followed_is_an_error() -> None:
    disk = with_file()
    for unknown in (
        call("link", '"", ""', b"/d/a", b"/d/c"),
        call("copy_file_range", "3, NULL, 9, NULL, 100, 0", result=100),
        call("mmap", "NULL, 4096, PROT_READ|PROT_WRITE, MAP_SHARED, 3, 0", result=1 << 40),
    ):
        with pytest.raises(Unknown):
            disk.follow(unknown)


def test_calls_of_two_threads_are_put_in_the_order_of_their_ends(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    trace.write_text(
        "7 fdatasync(3 <unfinished ...>\n"
        '8 write(4, "\\x61\\x22", 2) = 2\n'
        "7 <... fdatasync resumed>) = 0\n"
        '7 unlink("\\x2f\\x61") = -1 ENOENT (No such file or directory)\n'
        "7 +++ exited with 0 +++\n"
    )
    written, synced, failed = calls(trace)
    assert (written.name, written.strings, written.result) == ("write", (b'a"',), 2)
    assert (synced.name, synced.started) == ("fdatasync", 0)
    assert failed.result == -1


def test_a_descriptor_is_free_when_its_close_begins(tmp_path: Path) -> None:
    """Scenario random-97 once failed: another thread's open returned with the number of the
    descriptor before the close returned.
    """
    trace = tmp_path / "trace"
    trace.write_text(
        '1 openat(AT_FDCWD, "\\x61", O_RDWR) = 13\n'
        "1 close(13 <unfinished ...>\n"
        '2 openat(AT_FDCWD, "\\x62", O_RDWR) = 13\n'
        "1 <... close resumed>) = 0\n"
        "2 fsync(13) = 0\n"
    )
    assert [(call.name, call.result) for call in calls(trace)] == [
        ("openat", 13),
        ("close", 0),
        ("openat", 13),
        ("fsync", 0),
    ]
