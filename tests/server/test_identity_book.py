"""Who has called a store: what is counted, and that the table is bounded whoever comes."""

from __future__ import annotations

from logservice_wire.errors import PermissionDenied

from logservice import bounds
from logservice.ids import ShardId
from logservice.server.edge.identity_book import NOBODY, IdentityBook


class Clock:
    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def use(book: IdentityBook, name: str) -> None:
    book.used(name, "ipv4:127.0.0.1:5", "ab", 9.0)


def test_uses_and_denials_are_counted() -> None:
    clock = Clock()
    book = IdentityBook(clock=clock)
    use(book, "me")
    clock.now_s += 5
    use(book, "me")
    book.denied("me", "p", "Read", ShardId(7), PermissionDenied("no role read over shard 7"))
    book.denied(NOBODY, "ipv4:1.2.3.4:5", "Read", None, PermissionDenied("n" * 5000))
    [nobody, me] = book.rows()
    assert (me.first_s, me.last_s, me.calls, me.denials) == (1_000.0, 1_005.0, 2, 1)
    assert (me.denied_what, me.denied_shard, me.serial) == ("Read", 7, "ab")
    assert (nobody.calls, nobody.denials, nobody.peer) == (0, 1, "ipv4:1.2.3.4:5")
    assert len(nobody.denied_why) == bounds.DENIAL_TEXT_MAX
    assert nobody.denied_shard is None
    assert book.rows(only="me") == [me]
    assert book.rows(only="you") == []
    assert [one.identity for one in book.rows(after="a")] == ["me"]


def test_whoever_rotates_identities_fills_no_memory() -> None:
    """INV-SEEN-1, IDENTITIES_SEEN_MAX: who was used least recently goes, and is counted."""
    book = IdentityBook()
    use(book, "keeper")
    for number in range(3 * bounds.IDENTITIES_SEEN_MAX):
        use(book, f"rotated-{number}")
        if not number % 1000:
            use(book, "keeper")
    assert len(book) == bounds.IDENTITIES_SEEN_MAX
    assert book.forgotten == 2 * bounds.IDENTITIES_SEEN_MAX + 1
    assert [one.calls for one in book.rows(only="keeper")] == [14]
    assert book.rows(only="rotated-0") == []


def test_who_has_a_stream_is_passed_over() -> None:
    """A follower makes one call in an hour, and is in use."""
    clock = Clock()
    book = IdentityBook(3, clock)
    for name in ("follower", "a", "b"):
        use(book, name)
    [row] = book.rows(only="follower")
    row.streams += 1
    use(book, "c")
    assert [one.identity for one in book.rows()] == ["b", "c", "follower"]
    clock.now_s = 2_000.0
    book.stream_ended(row)
    assert (row.streams, row.last_s) == (0, 2_000.0)
    # When all are in use, one of them goes all the same.
    for one in book.rows():
        one.streams = 1
    use(book, "d")
    assert len(book) == 3
    assert book.forgotten == 2
