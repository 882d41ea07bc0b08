"""The files of an archive in a folder: what is promised of them, and every state that a crash
leaves."""

from __future__ import annotations

import builtins
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logservice.archive import folder as folders
from logservice.archive.folder import TEMPORARY, Folder


def put(folder: Folder, name: str, content: bytes) -> None:
    with folder.put(name) as file:
        file.write(content)


def test_a_file_is_there_when_it_is_whole(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    with folder.put("a/b/one") as file:
        file.write(b"12")
        assert [name for name in folder.names("a/b") if not name.endswith(TEMPORARY)] == []
        file.write(b"34")
    assert folder.names("a/b") == ["one"]
    assert folder.read("a/b/one", 100) == b"1234"
    with folder.open("a/b/one", 4) as file:
        assert file.read() == b"1234"
    folder.remove("a/b/one")
    folder.remove("a/b/one")
    assert folder.names("a/b") == folder.names("nowhere") == []
    with pytest.raises(FileNotFoundError):
        folder.read("a/b/one", 100)


def test_nobody_else_reads_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = Folder(tmp_path)
        put(folder, "a/b/one", b"1")
        folder.put_if_absent("a/m/1", b"1")
    finally:
        os.umask(before)
    modes = {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*") if path.is_file()}
    assert modes == {0o600}
    assert {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*") if path.is_dir()} == {0o700}


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    with pytest.raises(RuntimeError), folder.put("a/one") as file:
        file.write(b"12")
        raise RuntimeError
    assert folder.names("a") == []


def test_one_of_two_writers_is_told_that_it_wrote(tmp_path: Path) -> None:
    folder, other = Folder(tmp_path), Folder(tmp_path)
    assert folder.put_if_absent("m/1", b"mine")
    assert not other.put_if_absent("m/1", b"another")
    assert other.read("m/1", 4) == b"mine"
    assert folder.names("m") == ["1"]


def test_a_writer_whose_unfinished_file_was_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another archiver does that only when the name exists; else it is an error, and no answer."""
    folder = Folder(tmp_path)
    folder.put_if_absent("m/1", b"first")
    link = os.link

    def taken(source: Path, target: Path) -> None:
        os.unlink(source)
        link(source, target)

    monkeypatch.setattr(folders.os, "link", taken)
    assert not folder.put_if_absent("m/1", b"second")
    with pytest.raises(FileNotFoundError):
        folder.put_if_absent("m/2", b"third")


# --- crashes --------------------------------------------------------------------------------------


class Recorder:
    """What reaches the file system, in order, with the real calls made, too."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, ...]] = []
        self._paths: dict[int, str] = {}
        real_open, real_os_open = builtins.open, os.open

        def opened(path: Any, mode: str = "r", **more: Any) -> Any:
            file = real_open(path, mode, **more)
            if "x" in mode:
                self._paths[file.fileno()] = str(path)
                self.calls.append(("create", str(path)))
            return file

        def os_opened(path: Any, flags: int, *more: Any, **keys: Any) -> int:
            descriptor = real_os_open(path, flags, *more, **keys)
            if flags & os.O_DIRECTORY:
                self._paths[descriptor] = str(path)
            return descriptor

        patch.setattr(folders, "open", opened, raising=False)
        patch.setattr(folders.os, "open", os_opened)
        for name in ("rename", "link"):
            patch.setattr(folders.os, name, self._noting(name, getattr(os, name)))
        patch.setattr(folders.os, "fsync", self._fsync(os.fsync))
        mkdir = Path.mkdir

        def made(path: Path, *more: Any, **keys: Any) -> None:
            mkdir(path, *more, **keys)
            self.calls.append(("mkdir", str(path)))

        patch.setattr(Path, "mkdir", made)

    def _noting(self, name: str, call: Any) -> Any:
        def noted(source: Any, target: Any) -> None:
            call(source, target)
            self.calls.append((name, str(source), str(target)))

        return noted

    def _fsync(self, call: Any) -> Any:
        def noted(descriptor: int) -> None:
            call(descriptor)
            self.calls.append(("fsync", self._paths[descriptor]))

        return noted


def states(calls: list[tuple[str, ...]]) -> Iterator[dict[str, bool]]:
    """Every state behind `calls`: the names that are there, and whether with all of their bytes. A
    name may be lost until its folder was synced, and bytes until the file was.
    """
    synced_files: set[str] = set()
    inode: dict[str, str] = {}
    sure: dict[str, str] = {}
    pending: list[tuple[str, str | None, str]] = []
    for call, *paths in calls:
        if call in ("create", "mkdir"):
            inode[paths[0]] = paths[0]
            pending.append((paths[0], None, paths[0]))
        elif call in ("rename", "link"):
            inode[paths[1]] = inode[paths[0]]
            pending.append((paths[1], paths[0] if call == "rename" else None, inode[paths[0]]))
        elif paths[0] in inode and not os.path.isdir(paths[0]):
            synced_files.add(inode[paths[0]])
        else:
            folder = paths[0]
            for name, old, what in [one for one in pending if os.path.dirname(one[0]) == folder]:
                sure[name] = what
                sure.pop(old or "", None)
            pending = [one for one in pending if os.path.dirname(one[0]) != folder]
    for size in range(len(pending) + 1):
        for kept in itertools.combinations(pending, size):
            there = dict(sure)
            for name, old, what in kept:
                there[name] = what
                there.pop(old or "", None)
            yield {
                name: what in synced_files or os.path.isdir(name) for name, what in there.items()
            }


@pytest.mark.parametrize("absent", [False, True])
def test_every_crash_leaves_all_of_a_file_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, absent: bool
) -> None:
    """INV-ARCHIVE-FILES."""
    recorder = Recorder(monkeypatch)
    folder = Folder(tmp_path)
    if absent:
        assert folder.put_if_absent("a/b/one", b"content")
    else:
        put(folder, "a/b/one", b"content")
    name = str(tmp_path / "a/b/one")
    found = 0
    for length in range(len(recorder.calls) + 1):
        for state in states(recorder.calls[:length]):
            found += 1
            assert state.get(name, True), (
                f"a name without its bytes after {recorder.calls[:length]}"
            )
    assert found > 10
    for state in states(recorder.calls):
        for path in (name, str(tmp_path / "a/b"), str(tmp_path / "a")):
            assert state.get(path), f"{path} may be lost after the call has returned"


@pytest.mark.parametrize("skipped", ["file", "folder"])
def test_the_states_notice_a_skipped_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, skipped: str
) -> None:
    recorder = Recorder(monkeypatch)
    monkeypatch.setattr(folders, "_sync" if skipped == "file" else "_sync_folder", lambda _: None)
    put(Folder(tmp_path), "a/one", b"content")
    name = str(tmp_path / "a/one")
    every = [
        state.get(name)
        for length in range(len(recorder.calls) + 1)
        for state in states(recorder.calls[:length])
    ]
    last = [state.get(name) for state in states(recorder.calls)]
    assert (False in every) if skipped == "file" else (None in last)
