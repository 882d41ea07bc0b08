"""Sessions, writers and holds of several identities: none can harm what belongs to another.

The attacker is a neighbour: a client that has every right to append and truncate and knows
everything that can be guessed. It attacks the state machine, where no leader helps.
"""

from __future__ import annotations

import pytest

from logservice.bounds import SESSION_WINDOW, SESSIONS_MAX, SESSIONS_PER_OWNER_MAX
from logservice.ids import Lsn, StoreId
from logservice.outcome import Rejected
from logservice.owner import NO_NONCE, Author, Claim
from logservice.rsm.admission import Admission, Refuse
from logservice.rsm.append_request import AppendRequest
from logservice.rsm.commands import (
    AcquireWriter,
    OpenSession,
    ReleaseHold,
    ReleaseWriter,
    SetHold,
    Truncate,
)
from logservice.rsm.sessions import SessionTable
from tests.owners import APP, CLAIM, NONCE, OTHER, STORE
from tests.rsm.shard_driver import ShardDriver, landed, refused, request

EXPIRED = ("SESSION_EXPIRED", {})
DENIED = ("PERMISSION_DENIED", {"role": "admin", "owner": APP.identity})
OTHERS = OTHER.claim(NONCE)
"""The neighbour with the owner's nonce: it may even have stolen that."""


@pytest.fixture
def shard() -> ShardDriver:
    return ShardDriver()


def admitted(shard: ShardDriver, item: AppendRequest) -> tuple[str, dict[str, str]]:
    """The answer of a leader that refuses `item` before it has an LSN."""
    decision = Admission(shard.rsm).admit(item, shard.next_lsn)
    assert isinstance(decision, Refuse), decision
    return refused(decision.outcome)


# --- sessions -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "claim",
    [OTHERS, APP.claim(bytes(15) + b"\1"), APP.claim(NO_NONCE), OTHER.claim(NO_NONCE)],
    ids=["another identity with the nonce", "another nonce", "no nonce", "nothing"],
)
def test_g5_an_acked_sequence_is_never_anothers_whatever_another_identity_appends(
    shard: ShardDriver, claim: Claim
) -> None:
    """INV-RSM-OWNER. The attack: B appends sequence 2 in A's session. A's own sequence 2 was then
    answered as applied, with B's LSN.
    """
    session = shard.value(OpenSession(APP, NONCE))
    assert shard.append(session=session, sequence=1) == landed(1)
    before = shard.rsm.state.sessions.get(session)
    assert before is not None
    used = before.last_used
    for sequence in (1, 2, 3):
        stolen = request(session=session, sequence=sequence, claim=claim)
        assert admitted(shard, stolen) == EXPIRED
        assert refused(shard.append_all(stolen)[0]) == EXPIRED
    assert before.last_used == used
    assert shard.append(session=session, sequence=2) == landed(5)
    assert shard.append(session=session, sequence=2) == landed(5, duplicate=True)


def test_g5_the_same_identity_at_another_store_goes_on_with_its_session(shard: ShardDriver) -> None:
    session = shard.value(OpenSession(APP, NONCE))
    elsewhere = Author(APP.identity, StoreId("s2")).claim(NONCE)
    assert shard.append(session=session, sequence=1) == landed(1)
    assert shard.append(session=session, sequence=1, claim=elsewhere) == landed(1, duplicate=True)


def test_a_session_of_an_entry_not_applied_yet_cannot_be_guessed(shard: ShardDriver) -> None:
    guess = shard.index + 1
    assert admitted(shard, request(session=guess, sequence=1, claim=OTHERS)) == EXPIRED
    session = shard.value(OpenSession(APP, NONCE))
    assert session == guess
    assert shard.append(session=session, sequence=1) == landed(1)


@pytest.mark.parametrize("block", [b"another block of 40 bytes".ljust(40), b"x" * 41, b"short"])
def test_g5_a_repetition_with_another_block_is_refused_and_never_acknowledged(
    shard: ShardDriver, block: bytes
) -> None:
    original = b"the block of sequence one".ljust(40)
    session = shard.value(OpenSession(APP, NONCE))
    assert shard.append(session=session, sequence=1, block=original) == landed(1)
    reused = request(session=session, sequence=1, block=block)
    assert admitted(shard, reused) == ("SEQUENCE_REUSED", {"lsn": "1"})
    assert refused(shard.append_all(reused)[0]) == ("SEQUENCE_REUSED", {"lsn": "1"})
    again = shard.append(session=session, sequence=1, block=original)
    assert again == landed(1, duplicate=True)
    assert shard.append(session=session, sequence=2, block=block) == landed(4)
    assert len(shard.rsm.state.rejected) == 2
    restored = ShardDriver()
    restored.rsm.recover_from_snapshot(shard.rsm.save_snapshot())
    restored = ShardDriver(restored.rsm)
    assert refused(restored.append_all(reused)[0]) == ("SEQUENCE_REUSED", {"lsn": "1"})


# --- who crowds out whom --------------------------------------------------------------------------


def test_inv_rsm_share_opened_sessions_of_another_identity_evict_nobody_elses(
    shard: ShardDriver,
) -> None:
    """The attack: 6 500 opened sessions evicted A's."""
    session = shard.value(OpenSession(APP, NONCE))
    assert shard.append(session=session, sequence=1) == landed(1)
    for _ in range(6500):
        shard.command(OpenSession(OTHER, NONCE))
    assert shard.rsm.state.sessions.count_of(OTHERS.owner) == SESSIONS_PER_OWNER_MAX
    assert shard.append(session=session, sequence=1) == landed(1, duplicate=True)
    assert shard.append(session=session, sequence=2) == landed(3)


def test_inv_rsm_share_identities_together_take_from_the_greediest_only() -> None:
    """Nobody makes another's session old: the number of sessions of each owner counts."""
    sessions = SessionTable()
    index = 0
    mine = []

    def opened(owner: bytes) -> bool:
        nonlocal index
        index += 1
        return sessions.open(index, owner, NONCE)

    for _ in range(100):
        assert opened(b"me")
        mine.append(index)
    greedy = [b"greedy-1", b"greedy-2", b"greedy-3"]
    for _ in range(3 * SESSIONS_MAX):
        opened(greedy[index % 3])
    assert len(sessions) == SESSIONS_MAX
    assert all(sessions.get(session) is not None for session in mine)
    # A newcomer finds room at once: the owner with most sessions gives way.
    for _ in range(100):
        assert opened(b"newcomer")
    assert (sessions.count_of(b"me"), sessions.count_of(b"newcomer")) == (100, 100)
    shares = [sessions.count_of(owner) for owner in greedy]
    assert sum(shares) == SESSIONS_MAX - 200
    assert max(shares) - min(shares) <= 1


def test_the_sessions_of_one_identity_end_at_their_bound(shard: ShardDriver) -> None:
    answers = [shard.command(OpenSession(APP, NONCE)) for _ in range(SESSIONS_PER_OWNER_MAX + 1)]
    assert isinstance(answers[-1], Rejected) is False
    assert shard.status.session_count == SESSIONS_PER_OWNER_MAX
    # The oldest of its own sessions made room, since it was idle for so long.
    assert refused(shard.append(session=1, sequence=1)) == EXPIRED
    assert shard.append(session=2, sequence=1) == landed(2)
    assert SESSION_WINDOW < SESSIONS_PER_OWNER_MAX < SESSIONS_MAX


# --- the writer's epoch ---------------------------------------------------------------------------


@pytest.fixture
def fenced(shard: ShardDriver) -> ShardDriver:
    """A writes with epoch 1."""
    shard.append(10)
    assert shard.value(AcquireWriter(APP, False, 0, False, "db-1")) == 1
    return shard


def test_g9_another_identity_neither_appends_nor_truncates_with_the_writers_epoch(
    fenced: ShardDriver,
) -> None:
    stolen = request(epoch=1, claim=OTHERS)
    assert admitted(fenced, stolen)[0] == "FENCED"
    assert refused(fenced.append_all(stolen)[0])[0] == "FENCED"
    assert refused(fenced.command(Truncate(OTHER, Lsn(5), 1)))[0] == "FENCED"
    assert fenced.append(epoch=1) == landed(12)
    assert fenced.value(Truncate(APP, Lsn(5), 1)) == 5


def test_g9_another_identity_cannot_take_or_release_the_writers_epoch(fenced: ShardDriver) -> None:
    for command in (
        AcquireWriter(OTHER, False, 1, False, "thief"),
        AcquireWriter(OTHER, False, 0, True, "thief"),
        ReleaseWriter(OTHER, False, 1),
    ):
        assert refused(fenced.command(command)) == DENIED
    assert fenced.append(epoch=1) == landed(11)
    assert (fenced.status.writer_holder, fenced.status.writer_owner) == ("db-1", APP.identity)
    # A stale compare-and-swap is told the holder's epoch: that is no secret.
    stale = refused(fenced.command(AcquireWriter(OTHER, False, 0, False, "thief")))
    assert stale == ("STALE_EPOCH", {"epoch": "1", "holder": "db-1"})


def test_g9_the_override_of_administration_takes_the_epoch_over_and_fences_the_owner(
    fenced: ShardDriver,
) -> None:
    assert fenced.value(AcquireWriter(OTHER, True, 0, True, "rescue")) == 2
    assert refused(fenced.append(epoch=1))[0] == "FENCED"
    assert refused(fenced.append(epoch=2))[0] == "FENCED"
    assert fenced.append(epoch=2, claim=OTHERS) == landed(13)
    assert refused(fenced.command(ReleaseWriter(APP, False, 2)))[0] == "PERMISSION_DENIED"
    assert fenced.value(ReleaseWriter(APP, True, 2)) == 2
    # Nobody holds the epoch now: whoever may append may acquire it.
    assert fenced.value(AcquireWriter(OTHER, False, 2, False, "next")) == 3


def test_the_same_identity_takes_its_own_epoch_over(fenced: ShardDriver) -> None:
    elsewhere = Author(APP.identity, StoreId("s2"))
    assert fenced.value(AcquireWriter(elsewhere, False, 0, True, "db-2")) == 2
    assert fenced.append(epoch=2) == landed(11)


# --- holds ----------------------------------------------------------------------------------------


def test_another_identity_neither_moves_nor_releases_a_hold(shard: ShardDriver) -> None:
    """INV-RSM-HOLD-OWNER."""
    shard.append(20)
    shard.value(SetHold(APP, False, Lsn(5), "backup"))
    assert refused(shard.command(SetHold(OTHER, False, Lsn(15), "backup"))) == DENIED
    assert refused(shard.command(ReleaseHold(OTHER, False, "backup"))) == DENIED
    assert shard.value(Truncate(OTHER, Lsn(10), 0)) == 4
    assert shard.status.holds == (("backup", 5, APP.identity, 0, 0),)


def test_the_override_moves_and_releases_a_hold_which_stays_its_owners(shard: ShardDriver) -> None:
    """INV-RSM-HOLD-OWNER: after an override the hold still belongs to its identity."""
    shard.append(20)
    shard.value(SetHold(APP, False, Lsn(5), "backup"))
    shard.value(SetHold(OTHER, True, Lsn(8), "backup"))
    assert shard.status.holds == (("backup", 8, APP.identity, 0, 0),)
    shard.value(SetHold(APP, False, Lsn(9), "backup"))
    shard.value(ReleaseHold(OTHER, True, "backup"))
    assert shard.status.holds == ()


def test_the_holds_of_one_identity_end_at_their_bound(
    shard: ShardDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    from logservice.bounds import HOLDS_PER_OWNER_MAX

    shard.append(5)
    for number in range(HOLDS_PER_OWNER_MAX):
        shard.value(SetHold(APP, False, Lsn(2), f"h{number}"))
    reason, details = refused(shard.command(SetHold(APP, False, Lsn(2), "one more")))
    assert (reason, details["limit"]) == ("TOO_LARGE", str(HOLDS_PER_OWNER_MAX))
    assert shard.value(SetHold(OTHER, False, Lsn(2), "another's")) == 2


# --- what is printed ------------------------------------------------------------------------------


def test_no_nonce_shows_in_what_is_printed(shard: ShardDriver) -> None:
    for shown in (repr(CLAIM), str(CLAIM), repr(OpenSession(APP, NONCE)), f"{request()!r}"):
        assert NONCE.hex() not in shown
        assert repr(NONCE)[2:-1] not in shown
    assert STORE in repr(OpenSession(APP, NONCE))
