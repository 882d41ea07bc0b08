"""Named sessions: who goes on where another one stopped, and who is turned away."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from logservice_wire.errors import Reason

from logservice.bounds import (
    NAMED_SESSIONS_MAX,
    NAMED_SESSIONS_PER_OWNER_MAX,
    SESSION_EPOCH_BITS,
    SESSION_EPOCH_MAX,
    SESSION_WINDOW,
)
from logservice.ids import Index, SessionId
from logservice.lineage import NO_LINEAGE
from logservice.outcome import Applied, Outcome
from logservice.owner import Author, Claim, owner_digest
from logservice.rsm import named_sessions
from logservice.rsm.admission import ADMIT, PARK, Admission
from logservice.rsm.commands import (
    BeginLineage,
    Close,
    CommandMalformed,
    ForgetSession,
    OpenNamedSession,
    OpenSession,
    decode,
    encode,
)
from logservice.rsm.named_sessions import ANSWER, NamedSession, NamedSessions, nonce_of
from logservice.rsm.queries import NamedSessionsPage, NamedSessionsQuery
from logservice.rsm.snapshot_codec import decode_state, encode_state
from logservice.snapshot import SnapshotCorrupt
from tests.owners import APP, NONCE
from tests.rsm.shard_driver import ShardDriver, landed, refused, request

CONTENT = b"c" * 32
OTHER = b"d" * 32
NAME = "spark/query/3"
MINE = APP.claim(nonce_of(NAME))


def opened(epoch: int = 4, content: bytes = CONTENT, **fields: object) -> OpenNamedSession:
    known = {"author": APP, "ttl_s": 0, "stamp_us": 77, "name": NAME, **fields}
    return OpenNamedSession(epoch=epoch, content=content, **known)  # type: ignore[arg-type]


def answer(outcome: Outcome) -> tuple[int, int, int]:
    """Session, blocks that are in the log, stamp."""
    assert isinstance(outcome, Applied), outcome
    return (outcome.value, *ANSWER.unpack(outcome.data))


def block(k: int, epoch: int = 4) -> int:
    return epoch << SESSION_EPOCH_BITS | k


def append(
    log: ShardDriver, k: int, epoch: int = 4, *, session: int = 1, data: bytes = b"", count: int = 1
) -> Outcome:
    return log.append(
        count, session=session, sequence=block(k, epoch), claim=MINE, block=data or b"%d" % k
    )


@pytest.fixture
def log() -> ShardDriver:
    driver = ShardDriver()
    assert answer(driver.command(opened())) == (1, 0, 77)
    return driver


def test_who_comes_later_goes_on_where_the_first_one_stopped(log: ShardDriver) -> None:
    assert [append(log, k) for k in (1, 2, 3)] == [landed(1), landed(2), landed(3)]
    again = log.command(opened(stamp_us=99))
    assert answer(again) == (1, 3, 77), "the stamp is the first one's"
    assert isinstance(again, Applied)
    assert again.duplicate
    assert append(log, 3) == landed(3, duplicate=True)
    assert append(log, 4) == landed(5)


def test_inv_rsm_named_another_content_of_an_epoch_is_refused(log: ShardDriver) -> None:
    """INV-RSM-NAMED."""
    assert refused(log.command(opened(content=OTHER))) == ("SEQUENCE_REUSED", {"lsn": "0"})
    append(log, 1)
    assert refused(log.command(opened(content=OTHER))) == ("SEQUENCE_REUSED", {"lsn": "1"})
    assert answer(log.command(opened())) == (1, 1, 77)
    # And a block of another attempt under a sequence that is in the log, should one come.
    assert refused(append(log, 1, data=b"another")) == ("SEQUENCE_REUSED", {"lsn": "1"})


def test_a_later_epoch_ends_the_earlier_ones(log: ShardDriver) -> None:
    append(log, 1)
    append(log, 2)
    assert answer(log.command(opened(7, OTHER, stamp_us=88))) == (1, 0, 88)
    for late in (append(log, 3), append(log, 2), append(log, 1), log.command(opened())):
        assert refused(late)[0] == "SESSION_EXPIRED"
    assert refused(log.command(opened(7, CONTENT))) == ("SEQUENCE_REUSED", {"lsn": "0"})
    assert refused(append(log, 2, 7))[0] == "SEQUENCE_GAP"
    assert refused(append(log, 0, 7))[0] == "SESSION_EXPIRED"
    decode_state(encode_state(log.rsm.state))
    assert append(log, 1, 7, data=b"x") == landed(8)
    assert refused(append(log, 1, 8))[0] == "SEQUENCE_GAP", "nobody has opened that one"


def test_names_and_owners_are_kept_apart(log: ShardDriver) -> None:
    append(log, 1)
    other, stranger = log.index + 1, log.index + 2
    assert answer(log.command(opened(name="spark/query/4"))) == (other, 0, 77)
    them = Author("spiffe://them", APP.store)
    assert answer(log.command(opened(author=them, content=OTHER))) == (stranger, 0, 77)
    theirs = Claim(owner_digest(them.identity), MINE.nonce, MINE.store)
    assert refused(log.append(session=1, sequence=block(2), claim=theirs))[0] == "SESSION_EXPIRED"
    assert refused(append(log, 1, session=other))[0] == "SESSION_EXPIRED"
    assert answer(log.command(opened())) == (1, 1, 77)


def test_inv_rsm_named_the_window_is_of_the_epoch(log: ShardDriver) -> None:
    for k in range(1, SESSION_WINDOW + 3):
        append(log, k)
    assert refused(append(log, 2))[0] == "SESSION_EXPIRED"
    assert append(log, 3) == landed(3, duplicate=True)
    assert answer(log.command(opened())) == (1, SESSION_WINDOW + 2, 77)
    decode_state(encode_state(log.rsm.state))


def test_inv_rsm_lost_a_fork_leaves_names_that_nobody_opens_again(log: ShardDriver) -> None:
    """INV-RSM-LOST."""
    append(log, 1)
    log.command(BeginLineage(APP, 1, b"l" * 16, NO_LINEAGE))
    for epoch in (0, 4, 5, SESSION_EPOCH_MAX):
        assert refused(log.command(opened(epoch)))[0] == "SESSION_EXPIRED"
    assert refused(append(log, 2))[0] == "SESSION_EXPIRED"
    assert answer(log.command(opened(name="new")))[1:] == (0, 77)
    data = log.rsm.save_snapshot()
    log.rsm.recover_from_snapshot(data)
    assert log.rsm.save_snapshot() == data
    assert refused(log.command(opened(SESSION_EPOCH_MAX)))[0] == "SESSION_EXPIRED"


def test_a_closed_log_tells_of_what_was_begun(log: ShardDriver) -> None:
    append(log, 1)
    log.command(Close(APP))
    assert answer(log.command(opened())) == (1, 1, 77)
    assert append(log, 1) == landed(1, duplicate=True)
    for new in (opened(5), opened(name="new")):
        assert refused(log.command(new))[0] == "SHARD_CLOSED"
    assert refused(append(log, 2))[0] == "SHARD_CLOSED"


def test_named_sessions_give_way_to_nothing(
    log: ShardDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NAMED_SESSIONS_MAX and NAMED_SESSIONS_PER_OWNER_MAX."""
    assert NAMED_SESSIONS_MAX == 2 * NAMED_SESSIONS_PER_OWNER_MAX
    monkeypatch.setattr(named_sessions, "NAMED_SESSIONS_MAX", 4)
    them = Author("spiffe://them", APP.store)
    assert answer(log.command(opened(name="b")))
    reason, told = refused(log.command(opened(name="d")))
    assert (reason, told["name"], told["limit"], told["value"]) == (
        "TOO_LARGE",
        "named sessions of one identity",
        "2",
        "3",
    )
    assert answer(log.command(opened(name="a", author=them)))
    reason, told = refused(log.command(opened(name="b", author=them)))
    assert (reason, told["name"], told["limit"]) == (
        "TOO_LARGE",
        "named sessions of one identity",
        "1",
    )
    assert answer(log.command(opened(name="a", author=Author("spiffe://third", APP.store))))
    reason, told = refused(log.command(opened(name="a", author=Author("spiffe://4", APP.store))))
    assert (reason, told["name"], told["limit"]) == ("TOO_LARGE", "named sessions of a log", "4")
    for _ in range(5000):
        log.value(OpenSession(APP, NONCE))
    assert answer(log.command(opened())) == (1, 0, 77)
    assert answer(log.command(opened(epoch=9)))[1:] == (0, 77)


def test_whoever_comes_later_finds_room_however_greedy_the_others_are(
    log: ShardDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NAMED_SESSIONS_MAX: half of what the others leave, so nobody is locked out by two."""
    monkeypatch.setattr(named_sessions, "NAMED_SESSIONS_MAX", 32)
    log = ShardDriver()
    got = []
    for who in range(7):
        author, taken = Author(f"spiffe://{who}", APP.store), 0
        while isinstance(found := log.command(opened(name=f"{taken}", author=author)), Applied):
            taken += 1
        got.append(taken)
        reason, told = refused(found)
        assert reason == "TOO_LARGE"
        assert told["value"] == str(int(told["limit"]) + 1)
    assert got == [16, 8, 4, 2, 1, 1, 0]
    decode_state(encode_state(log.rsm.state))


# --- forgetting -----------------------------------------------------------------------------------

THEM = Author("spiffe://them", APP.store)


def forgetting(
    session: int = 1, last_used: int = 10**6, *, author: Author = APP, override: bool = False
) -> ForgetSession:
    return ForgetSession(author, override, SessionId(session), Index(last_used))


def test_inv_rsm_forgotten_what_comes_of_its_epoch_is_refused(log: ShardDriver) -> None:
    """INV-RSM-FORGOTTEN."""
    for k in (1, 2):
        append(log, k)
    assert log.command(forgetting()) == Applied()
    assert log.command(forgetting()) == Applied(duplicate=True)
    assert log.command(forgetting(99)) == Applied(duplicate=True)
    late = [append(log, k) for k in (1, 2, 3)] + [append(log, 1, epoch) for epoch in (3, 5)]
    late += [log.command(opened(epoch)) for epoch in (0, 3, 4)]
    late += [log.command(opened(content=bytes(32)))]
    assert {refused(one)[0] for one in late} == {"SESSION_EXPIRED"}
    data = log.rsm.save_snapshot()
    log.rsm.recover_from_snapshot(data)
    assert log.rsm.save_snapshot() == data
    assert refused(log.command(opened()))[0] == "SESSION_EXPIRED"
    assert answer(log.command(opened(5, OTHER, stamp_us=9))) == (1, 0, 9), "its next work may begin"
    assert isinstance(append(log, 1, 5), Applied)
    assert answer(log.command(opened(5, OTHER))) == (1, 1, 9)


def test_only_its_owner_or_administration_forgets_and_only_what_was_seen(log: ShardDriver) -> None:
    told = refused(log.command(forgetting(author=THEM)))
    assert told == ("PERMISSION_DENIED", {"role": "admin", "owner": APP.identity})
    seen = log.index
    append(log, 1)
    reason, _ = refused(log.command(forgetting(last_used=seen)))
    assert reason == "VERB_REFUSED"
    assert append(log, 2) == landed(2)
    assert log.command(forgetting(author=THEM, override=True)) == Applied()
    assert refused(append(log, 3))[0] == "SESSION_EXPIRED"


def test_a_forgotten_name_makes_room_and_stays_as_long_as_there_is_some(
    log: ShardDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(named_sessions, "NAMED_SESSIONS_MAX", 4)
    assert answer(log.command(opened(name="b")))
    assert refused(log.command(opened(name="c")))[0] == "TOO_LARGE"
    assert log.command(forgetting(1)) == Applied()
    third = answer(log.command(opened(name="c")))[0]
    assert len(log.rsm.state.named) == 3
    assert refused(log.command(opened(9)))[0] == "TOO_LARGE", "to come back takes room, too"
    assert refused(log.command(opened()))[0] == "SESSION_EXPIRED"
    assert log.command(forgetting(third)) == Applied()
    assert answer(log.command(opened(name="d")))
    assert len(log.rsm.state.named) == 4
    assert answer(log.command(opened(name="e", author=THEM)))
    assert refused(log.command(opened(name="c")))[0] == "SESSION_EXPIRED"
    # The one that was forgotten first is gone, and its name is like any new one.
    assert log.rsm.state.named.get(SessionId(1)) is None
    log.command(forgetting(2))
    assert answer(log.command(opened()))[1:] == (0, 77)
    decode_state(encode_state(log.rsm.state))


def test_who_opens_and_forgets_without_end_pushes_out_nobody_elses(
    log: ShardDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(named_sessions, "NAMED_SESSIONS_MAX", 6)
    log.command(forgetting(1))
    for number in range(20):
        session = answer(log.command(opened(name=f"{number}", author=THEM)))[0]
        assert log.command(forgetting(session, author=THEM)) == Applied()
    assert refused(log.command(opened()))[0] == "SESSION_EXPIRED"
    assert len(log.rsm.state.named) == 6


def test_names_that_a_fork_has_lost_can_be_forgotten(
    log: ShardDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(named_sessions, "NAMED_SESSIONS_MAX", 2)
    log.command(BeginLineage(APP, 1, b"l" * 16, NO_LINEAGE))
    assert refused(log.command(opened(name="new")))[0] == "TOO_LARGE"
    assert log.command(forgetting()) == Applied()
    for epoch in (4, 5, SESSION_EPOCH_MAX):
        assert refused(log.command(opened(epoch)))[0] == "SESSION_EXPIRED"
    assert answer(log.command(opened(name="new")))
    data = log.rsm.save_snapshot()
    log.rsm.recover_from_snapshot(data)
    assert log.rsm.save_snapshot() == data


def test_they_are_listed_by_page(log: ShardDriver) -> None:
    append(log, 1)
    second = answer(log.command(opened(2**31 - 1, name="b", ttl_s=60, author=THEM)))[0]
    log.command(forgetting(second, author=THEM))
    first = log.rsm.lookup(NamedSessionsQuery(limit=1))
    assert isinstance(first, NamedSessionsPage)
    ((*numbers, lost, forgotten),) = first.rows
    assert numbers == [1, NAME, APP.identity, 4, 1, 77, 0, 2, 0]
    assert (lost, forgotten, first.more) == (False, False, True)
    behind = log.rsm.lookup(NamedSessionsQuery(limit=9, after=SessionId(1)))
    assert isinstance(behind, NamedSessionsPage)
    ((*numbers, lost, forgotten),) = behind.rows
    assert numbers == [second, "b", THEM.identity, 2**31 - 1, 0, 0, 60, second, 0]
    assert (lost, forgotten, behind.more) == (False, True, False)


def test_a_time_to_live_lets_go_only_when_room_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(named_sessions, "NAMED_SESSIONS_MAX", 6)
    table = NamedSessions()
    index = 0

    def put(name: str, now_s: int, ttl_s: int = 0, epoch: int = 1) -> Outcome:
        nonlocal index
        index += 1
        now_us = now_s * 1_000_000
        command = opened(epoch, name=name, stamp_us=5, ttl_s=ttl_s)
        return table.open(Index(index), command, now_us, None)

    assert answer(put("kept", 10)) == (1, 0, 5)
    assert answer(put("short", 10, ttl_s=60)) == (2, 0, 5)
    assert answer(put("another", 5000)) == (3, 0, 5)
    assert answer(put("short", 5000)) == (2, 0, 5), "its room was not needed"
    assert refused(put("third", 5060))[0] == "TOO_LARGE", "used 60 s ago, not more"
    assert answer(put("third", 5061)) == (6, 0, 5)
    assert len(table) == 3
    assert refused(put("fourth", 99_999))[0] == "TOO_LARGE", "none has a time to live"
    assert answer(put("kept", 99_999, epoch=1)) == (1, 0, 5)


# --- admission ------------------------------------------------------------------------------------


def ask(log: ShardDriver, admission: Admission, k: int, epoch: int) -> object:
    item = request(session=1, sequence=block(k, epoch), claim=MINE, block=b"%d" % k)
    decision = admission.admit(item, log.next_lsn)
    if decision is ADMIT:
        admission.appended(item, log.next_lsn)
        return log.block_entry(item)
    return decision


def test_the_leader_waits_for_an_epoch_that_is_in_its_tail(log: ShardDriver) -> None:
    """Another replica has applied the opening, and its client is quick."""
    admission = Admission(log.rsm)
    command = encode(opened(5))
    entry = log.command_entry(command)
    admission.command_appended(command, log.index)
    assert ask(log, admission, 1, 5) is PARK
    log.apply(entry)
    assert ask(log, admission, 1, 5) not in (PARK, ADMIT)


def test_a_late_block_in_the_tail_does_not_hold_up_the_next_epoch(log: ShardDriver) -> None:
    admission = Admission(log.rsm)
    command = encode(opened(5))
    opening = log.command_entry(command)
    admission.command_appended(command, log.index)
    late = ask(log, admission, 1, 4)
    log.apply(opening)
    first = ask(log, admission, 1, 5)
    assert refused(log.apply(late)[0])[0] == "SESSION_EXPIRED"  # type: ignore[arg-type]
    assert log.apply(first) == [landed(2)]  # type: ignore[arg-type]
    assert log.rsm.state.session(SessionId(1)).last_sequence == block(1, 5)  # type: ignore[union-attr]


# --- bytes ----------------------------------------------------------------------------------------


def test_a_snapshot_carries_them(log: ShardDriver) -> None:
    append(log, 1)
    log.command(opened(name="another", ttl_s=3600, epoch=0))
    data = log.rsm.save_snapshot()
    assert data[4:6] == b"\x03\x00"
    twin = ShardDriver()
    twin.rsm.recover_from_snapshot(data)
    assert twin.rsm.save_snapshot() == data
    twin.index, twin.next_lsn = log.index, log.next_lsn
    for again in (lambda one: append(one, 1), lambda one: append(one, 2)):
        assert again(twin) == again(log)
    for command in (opened(), opened(content=OTHER), opened(3), opened(6)):
        assert twin.command(command) == log.command(command)
    assert twin.rsm.save_snapshot() == log.rsm.save_snapshot()


def ruined_twice(rows: dict[SessionId, NamedSession]) -> None:
    rows[SessionId(2)] = rows[SessionId(1)]


def ruined_epoch(rows: dict[SessionId, NamedSession]) -> None:
    rows[SessionId(1)].last_sequence = block(0, SESSION_EPOCH_MAX + 1)


def ruined_window(rows: dict[SessionId, NamedSession]) -> None:
    rows[SessionId(1)].window.clear()


def ruined_memory(rows: dict[SessionId, NamedSession]) -> None:
    rows[SessionId(1)].lose()
    rows[SessionId(1)].content = CONTENT


def ruined_name(rows: dict[SessionId, NamedSession]) -> None:
    rows[SessionId(1)].name = ""


def ruined_owner(rows: dict[SessionId, NamedSession]) -> None:
    rows[SessionId(1)].identity = ""


def ruined_forgetting(rows: dict[SessionId, NamedSession]) -> None:
    rows[SessionId(1)].forget(Index(1))


def ruined_forgotten(rows: dict[SessionId, NamedSession]) -> None:
    rows[SessionId(1)].forgotten = Index(2)


def ruined_time(rows: dict[SessionId, NamedSession]) -> None:
    rows[SessionId(1)].used_us = 1


@pytest.mark.parametrize(
    "ruin",
    [
        ruined_twice,
        ruined_epoch,
        ruined_window,
        ruined_memory,
        ruined_name,
        ruined_owner,
        ruined_forgetting,
        ruined_forgotten,
        ruined_time,
    ],
)
def test_rows_that_no_log_could_have_are_refused(
    log: ShardDriver, ruin: Callable[[dict[SessionId, NamedSession]], None]
) -> None:
    append(log, 1)
    rows = dict(log.rsm.state.named)
    ruin(rows)
    log.rsm.state.named = NamedSessions(rows)
    with pytest.raises(SnapshotCorrupt):
        decode_state(encode_state(log.rsm.state))


@pytest.mark.parametrize(
    "wrong", [{"epoch": SESSION_EPOCH_MAX + 1}, {"content": b"short"}, {"name": ""}]
)
def test_what_no_state_accepts_is_refused_before(wrong: dict[str, object]) -> None:
    command = opened(**wrong)  # type: ignore[arg-type]
    with pytest.raises(Exception, match=r"epoch|content|name|bytes|empty") as caught:
        encode(command)
    assert caught.value.reason is Reason.INVALID_ARGUMENT  # type: ignore[attr-defined]


def test_an_epoch_beyond_the_last_is_malformed_in_the_log() -> None:
    data = bytearray(encode(opened(SESSION_EPOCH_MAX)))
    at = data.index((SESSION_EPOCH_MAX).to_bytes(4, "little"))
    data[at : at + 4] = (SESSION_EPOCH_MAX + 1).to_bytes(4, "little")
    with pytest.raises(CommandMalformed):
        decode(bytes(data))
