"""AccessBook survives restarts in every data directory; a damaged one grants nothing."""

from __future__ import annotations

import pytest

from logservice.hakeeper.commands.proposals import AccessGrant
from logservice.ids import ShardId
from logservice.logdb.io.memory_vfs import MemoryVfs
from logservice.logdb.io.vfs import read_file, write_file
from logservice.nodehost.agent.access_book import AccessBook
from logservice.nodehost.agent.remembered_file import Copy
from tests.papers import uri

ME = uri("client", "me")
GRANTS = (AccessGrant(ME, "*", ("read",)),)


def granted(book: AccessBook) -> bool:
    return "read" in book.list.roles(ME, ShardId(1), None)


def test_the_book_survives_a_restart() -> None:
    vfs = MemoryVfs()
    book = AccessBook([Copy(vfs, "/access")])
    assert not granted(book)
    assert book.list.version == 0
    book.update(5, GRANTS)
    assert granted(book)
    again = AccessBook([Copy(vfs, "/access")])
    assert granted(again)
    assert again.list.version == 5


def test_the_newest_of_several_directories_counts() -> None:
    old, new = MemoryVfs(), MemoryVfs()
    AccessBook([Copy(old, "/access")]).update(5, GRANTS)
    AccessBook([Copy(new, "/access")]).update(6, ())
    assert not granted(AccessBook([Copy(old, "/access"), Copy(new, "/access")]))
    assert not granted(AccessBook([Copy(new, "/access"), Copy(old, "/access")]))


@pytest.mark.parametrize("position", [0, 4, 5, -1])
def test_a_damaged_file_grants_nothing(position: int) -> None:
    """INV-ACCESS-1."""
    vfs = MemoryVfs()
    AccessBook([Copy(vfs, "/access")]).update(5, GRANTS)
    data = bytearray(read_file(vfs, "/access"))
    data[position] ^= 1
    write_file(vfs, "/access", bytes(data))
    assert not granted(AccessBook([Copy(vfs, "/access")]))


@pytest.mark.parametrize("data", [b"", b"x", b"\0" * 64])
def test_garbage_grants_nothing(data: bytes) -> None:
    vfs = MemoryVfs()
    write_file(vfs, "/access", data)
    assert AccessBook([Copy(vfs, "/access")]).list.version == 0
