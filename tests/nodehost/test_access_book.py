"""AccessBook survives restarts in every data directory; a damaged one grants nothing."""

from __future__ import annotations

import pytest

from logservice import bounds
from logservice.clock import ManualClock
from logservice.hakeeper.commands.proposals import AccessGrant
from logservice.ids import ShardId
from logservice.logdb.io.memory_vfs import MemoryVfs
from logservice.logdb.io.vfs import read_file, write_file
from logservice.nodehost.agent.access_book import AccessBook
from logservice.nodehost.agent.remembered_file import Copy
from tests.papers import uri

CLOCK = ManualClock()
ME = uri("client", "me")
GRANTS = (AccessGrant(ME, "*", ("read",)),)


def granted(book: AccessBook) -> bool:
    return "read" in book.list.roles(ME, ShardId(1), None)


def test_the_book_survives_a_restart() -> None:
    vfs = MemoryVfs()
    book = AccessBook([Copy(vfs, "/access")], CLOCK)
    assert not granted(book)
    assert book.list.version == 0
    book.update(5, GRANTS)
    assert granted(book)
    again = AccessBook([Copy(vfs, "/access")], CLOCK)
    assert granted(again)
    assert again.list.version == 5


def test_the_newest_of_several_directories_counts() -> None:
    old, new = MemoryVfs(), MemoryVfs()
    AccessBook([Copy(old, "/access")], CLOCK).update(5, GRANTS)
    AccessBook([Copy(new, "/access")], CLOCK).update(6, ())
    assert not granted(AccessBook([Copy(old, "/access"), Copy(new, "/access")], CLOCK))
    assert not granted(AccessBook([Copy(new, "/access"), Copy(old, "/access")], CLOCK))


def test_denials_survive_a_restart_and_only_then_another_form_is_written() -> None:
    """At cluster version 1 there are none, and an older program reads what is written."""
    vfs = MemoryVfs()
    book = AccessBook([Copy(vfs, "/access")], CLOCK)
    book.update(5, GRANTS)
    assert read_file(vfs, "/access")[4:5] == b"\x01"
    book.update(6, GRANTS, (AccessGrant(ME, "*", ("all",)),))
    assert read_file(vfs, "/access")[4:5] == b"\x02"
    assert not granted(book)
    again = AccessBook([Copy(vfs, "/access")], CLOCK)
    assert again.list.version == 6
    assert not granted(again)
    again.update(7, GRANTS)
    assert granted(AccessBook([Copy(vfs, "/access")], CLOCK))


@pytest.mark.parametrize("position", [0, 4, 5, -1])
def test_a_damaged_file_grants_nothing(position: int) -> None:
    """INV-ACCESS-1."""
    vfs = MemoryVfs()
    AccessBook([Copy(vfs, "/access")], CLOCK).update(5, GRANTS)
    data = bytearray(read_file(vfs, "/access"))
    data[position] ^= 1
    write_file(vfs, "/access", bytes(data))
    assert not granted(AccessBook([Copy(vfs, "/access")], CLOCK))


@pytest.mark.parametrize("data", [b"", b"x", b"\0" * 64])
def test_garbage_grants_nothing(data: bytes) -> None:
    vfs = MemoryVfs()
    write_file(vfs, "/access", data)
    assert AccessBook([Copy(vfs, "/access")], CLOCK).list.version == 0


def test_the_list_is_current_for_a_while_after_an_answer() -> None:
    """ACCESS_CURRENT_S, at its edge; a list from the disk is not current."""
    vfs, clock = MemoryVfs(), ManualClock()
    AccessBook([Copy(vfs, "/access")], clock).update(5, GRANTS)
    book = AccessBook([Copy(vfs, "/access")], clock)
    assert not book.current
    book.confirm(clock.boottime())
    clock.advance(bounds.ACCESS_CURRENT_S)
    assert book.current
    clock.advance(0.001)
    assert not book.current
    book.confirm(clock.boottime())
    assert book.current


def test_a_list_that_nobody_confirms_grants_nothing_in_the_end() -> None:
    """INV-ACCESS-2, GRANT_AGE_MAX_S, at its edge: in one process, and by the wall clock in the next
    one. Where that clock was set back, nobody knows.
    """
    vfs, clock = MemoryVfs(), ManualClock(1000.0)
    book = AccessBook([Copy(vfs, "/access")], clock, heard_us=clock.wall_us())
    for confirmed in (False, True):
        clock.advance(bounds.GRANT_AGE_MAX_S)
        assert not book.too_old, confirmed
        clock.advance(0.001)
        assert book.too_old
        book.confirm(clock.boottime())
        assert not book.too_old
    later = AccessBook([Copy(vfs, "/access")], ManualClock(999.0), heard_us=1_000_000_000)
    assert later.too_old
    assert AccessBook([Copy(vfs, "/access")], clock).too_old
    never = AccessBook([Copy(vfs, "/access")], clock, ages=lambda: False)
    assert not never.too_old


@pytest.mark.parametrize("back_s", [0.0, 1.0, 3600.0, 10 * 365 * 86_400.0])
def test_a_suspended_host_and_a_clock_that_is_set_back_keep_no_list(back_s: float) -> None:
    """INV-ACCESS-2, INV-EXPIRY: in the process that heard of it, and in the next one."""
    vfs, clock = MemoryVfs(), ManualClock(1_700_000_000.0)
    heard = AccessBook([Copy(vfs, "/access")], clock)
    heard.confirm(clock.boottime())
    later = AccessBook([Copy(vfs, "/access")], clock, heard_us=clock.wall_us())
    assert heard.current
    clock.suspend(bounds.GRANT_AGE_MAX_S - 1)
    assert not heard.current
    assert not heard.too_old
    assert not later.too_old
    clock.suspend(2.0)
    clock.set_wall(-back_s)
    assert heard.too_old
    assert later.too_old


def test_what_was_asked_before_the_host_was_suspended_confirms_nothing_of_now() -> None:
    """The answer waited in a socket."""
    clock = ManualClock(1000.0)
    book = AccessBook([Copy(MemoryVfs(), "/access")], clock)
    asked_s = clock.boottime()
    clock.suspend(bounds.GRANT_AGE_MAX_S + 1)
    book.confirm(asked_s)
    assert not book.current
    assert book.too_old
