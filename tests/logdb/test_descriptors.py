"""A process without a descriptor left: log storage waits, loses nothing, and goes on."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from logservice.bounds import DISK_SPARE_DESCRIPTORS
from logservice.logdb.io.posix_vfs import PosixVfs
from logservice.logdb.space.disk_space import OutOfDescriptors, OutOfSpace
from tests.logdb.helpers import SMALL, World, all_entries, entries, log_of, update


@contextlib.contextmanager
def none_left() -> Iterator[None]:
    """Let every opening of a file inside the block fail with EMFILE."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = [os.open(os.devnull, os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (held[0] + 1, hard))
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for one in held:
            os.close(one)


def test_files_are_opened_with_what_was_spared(tmp_path: Path) -> None:
    vfs = PosixVfs(DISK_SPARE_DESCRIPTORS)
    with none_left():
        made = [vfs.create(str(tmp_path / str(number))) for number in range(DISK_SPARE_DESCRIPTORS)]
        with pytest.raises(OSError) as caught:
            vfs.create(str(tmp_path / "more"))
        assert caught.value.errno == errno.EMFILE
        vfs.close(made.pop())
        vfs.fsync_directory(str(tmp_path))
        vfs.close(vfs.open_write(str(tmp_path / "0")))
    for one in made:
        vfs.close(one)


def test_without_spares_an_open_fails_as_it_does(tmp_path: Path) -> None:
    with none_left(), pytest.raises(OSError):
        PosixVfs().create(str(tmp_path / "a"))


@pytest.mark.parametrize("recycled", [0, 2])
def test_a_segment_that_cannot_be_opened_waits(tmp_path: Path, recycled: int) -> None:
    """Nothing of the group is written and nothing is lost; the same group succeeds later."""
    world = World(
        vfs=PosixVfs(), path=str(tmp_path), options=replace(SMALL, spare_segments_max=recycled)
    )
    db = world.open()
    index = 1

    def write() -> None:
        db.commit([update(1, 1, entries(index, index, size=900))])

    while index <= 20:
        write()
        index += 1
    if recycled:
        db.commit([update(1, 1, snapshot=18)])
        assert db.collect_garbage().unlinked
    refused = 0
    while refused < 3:
        with none_left():
            try:
                write()
            except OutOfDescriptors:
                refused += 1
                for _ in range(2):
                    with pytest.raises(OutOfDescriptors):
                        write()
            else:
                index += 1
                continue
        write()
        index += 1
    db = world.reopen(db)
    first = 19 if recycled else 1
    assert all_entries(log_of(db)) == entries(first, index - 1, size=900)
    world.close(db)
    assert issubclass(OutOfDescriptors, OutOfSpace), "the engine waits and tries again"


def test_a_store_rolls_segments_without_a_descriptor_left(tmp_path: Path) -> None:
    world = World(vfs=PosixVfs(DISK_SPARE_DESCRIPTORS), path=str(tmp_path))
    db = world.open()
    with none_left():
        for index in range(1, 41):
            db.commit([update(1, 1, entries(index, index, size=900))])
    db = world.reopen(db)
    assert all_entries(log_of(db)) == entries(1, 40, size=900)
    world.close(db)
