"""Admission: the leader's judgement before an LSN is given agrees with what apply will say."""

from __future__ import annotations

import random
from collections import deque

import pytest

from logservice.bounds import SESSIONS_MAX
from logservice.entry import Entry
from logservice.ids import Lsn, SessionId
from logservice.outcome import Applied, Outcome
from logservice.rsm import admission as admission_module
from logservice.rsm.admission import ADMIT, PARK, Admission, Decision, Refuse
from logservice.rsm.append_request import AppendRequest
from logservice.rsm.commands import (
    AcquireWriter,
    AllocateTimestamps,
    Command,
    OpenSession,
    ReleaseWriter,
    SetHold,
    encode,
)
from tests.owners import APP, NONCE
from tests.rsm.shard_driver import ShardDriver, landed, refused, request


class Leader:
    """A leader whose log commits only when told to: `tail` is appended and not yet applied."""

    def __init__(self) -> None:
        self.log = ShardDriver()
        self.admission = Admission(self.log.rsm)
        self.tail: deque[Entry] = deque()

    def ask(self, item: AppendRequest) -> Decision:
        """Judge a block, and append it when it is admitted."""
        decision = self.admission.admit(item, self.log.next_lsn)
        if decision is ADMIT:
            self.admission.appended(item, self.log.next_lsn)
            self.tail.append(self.log.block_entry(item))
        return decision

    def propose(self, command: Command) -> int:
        """Append a command; returns its index."""
        data = encode(command)
        assert self.admission.admit_command(data) is ADMIT
        self.tail.append(self.log.command_entry(data))
        self.admission.command_appended(data, self.log.index)
        return self.log.index

    def commit(self, count: int | None = None) -> list[Outcome]:
        """Apply the first `count` entries of the tail, or all."""
        outcomes: list[Outcome] = []
        for _ in range(len(self.tail) if count is None else count):
            outcomes += self.log.apply(self.tail.popleft())
        return outcomes

    def run(self, command: Command) -> int:
        """Append and commit a command; returns its value."""
        self.propose(command)
        outcome = self.commit()[-1]
        assert isinstance(outcome, Applied)
        return outcome.value


@pytest.fixture
def leader() -> Leader:
    return Leader()


def answer(decision: Decision) -> Outcome:
    assert isinstance(decision, Refuse), decision
    return decision.outcome


def test_appends_without_conditions_are_admitted_one_behind_the_other(leader: Leader) -> None:
    assert [leader.ask(request(2)) for _ in range(3)] == [ADMIT] * 3
    assert leader.commit() == [landed(1, 2), landed(3, 2), landed(5, 2)]


def test_a_session_pipelines_through_the_uncommitted_tail(leader: Leader) -> None:
    session = leader.run(OpenSession(APP, NONCE))
    for sequence in range(1, 6):
        assert leader.ask(request(session=session, sequence=sequence)) is ADMIT
    leader.commit(2)
    assert leader.ask(request(session=session, sequence=6)) is ADMIT
    leader.commit()
    leader.admission.tail_applied()
    assert leader.ask(request(session=session, sequence=7)) is ADMIT
    assert leader.commit() == [landed(7)]


def test_a_repetition_is_answered_once_its_original_is_applied(leader: Leader) -> None:
    session = leader.run(OpenSession(APP, NONCE))
    leader.ask(request(3, session=session, sequence=1))
    assert leader.ask(request(3, session=session, sequence=1)) is PARK
    leader.commit()
    again = leader.ask(request(3, session=session, sequence=1))
    assert answer(again) == landed(1, 3, duplicate=True)


def test_what_follows_a_parked_request_of_the_session_is_parked_behind_it(leader: Leader) -> None:
    session, other = leader.run(OpenSession(APP, NONCE)), leader.run(OpenSession(APP, NONCE))
    leader.ask(request(session=session, sequence=1))
    assert leader.ask(request(session=session, sequence=1)) is PARK
    assert leader.ask(request(session=session, sequence=2)) is PARK
    assert leader.ask(request(session=other, sequence=1)) is ADMIT
    leader.commit(1)
    assert answer(leader.ask(request(session=session, sequence=1))) == landed(1, duplicate=True)
    assert leader.ask(request(session=session, sequence=2)) is ADMIT
    assert leader.commit() == [landed(2), landed(3)]


def test_a_request_behind_a_parked_one_waits_for_the_same_commands(leader: Leader) -> None:
    session = leader.run(OpenSession(APP, NONCE))
    leader.propose(AcquireWriter(APP, False, 0, False, "a"))
    leader.propose(AllocateTimestamps(1))
    assert leader.ask(request(session=session, sequence=1, epoch=1)) is PARK
    leader.commit(1)
    # The grant is applied. But the parked request is to be judged first, after the next command: if
    # its successor were judged now, it would be a gap.
    assert leader.ask(request(session=session, sequence=2, epoch=1)) is PARK
    leader.commit()
    assert leader.ask(request(session=session, sequence=1, epoch=1)) is ADMIT
    assert leader.ask(request(session=session, sequence=2, epoch=1)) is ADMIT


def test_an_admitted_block_that_became_a_gap_does_not_block_its_session(leader: Leader) -> None:
    session = leader.run(OpenSession(APP, NONCE))
    assert leader.ask(request(session=session, sequence=1)) is ADMIT
    leader.tail.clear()
    leader.log.index, leader.log.next_lsn = (
        leader.log.rsm.state.applied_index,
        leader.log.rsm.state.next_lsn,
    )
    assert refused(leader.log.append(session=session, sequence=1, epoch=9))[0] == "FENCED"
    assert leader.ask(request(session=session, sequence=1)) is ADMIT
    assert leader.commit() == [landed(2)]


def test_tail_applied_only_forgets_what_is_applied(leader: Leader) -> None:
    session, other = leader.run(OpenSession(APP, NONCE)), leader.run(OpenSession(APP, NONCE))
    leader.ask(request(session=session, sequence=1))
    leader.ask(request(session=other, sequence=1))
    leader.commit(1)
    leader.admission.tail_applied()
    assert leader.ask(request(session=other, sequence=2)) is ADMIT
    assert leader.ask(request(session=session, sequence=2)) is ADMIT
    assert leader.ask(request(session=other, sequence=1)) is PARK
    assert leader.commit() == [landed(2), landed(3), landed(4)]


def test_a_gap_is_refused_at_once(leader: Leader) -> None:
    session = leader.run(OpenSession(APP, NONCE))
    leader.ask(request(session=session, sequence=1))
    gap = leader.ask(request(session=session, sequence=3))
    assert refused(answer(gap)) == ("SEQUENCE_GAP", {"last": "0"})
    assert refused(answer(leader.ask(request(session=99, sequence=1))))[0] == "SESSION_EXPIRED"


def test_a_session_that_is_not_applied_here_yet_is_parked(leader: Leader) -> None:
    session = leader.propose(OpenSession(APP, NONCE))
    assert leader.ask(request(session=session, sequence=1)) is PARK
    assert refused(answer(leader.ask(request(session=session + 1, sequence=1))))[0] == (
        "SESSION_EXPIRED"
    )
    leader.commit()
    assert leader.ask(request(session=session, sequence=1)) is ADMIT


def test_g9_nothing_is_admitted_while_a_grant_is_uncommitted(leader: Leader) -> None:
    assert leader.ask(request()) is ADMIT
    leader.propose(AcquireWriter(APP, False, 0, False, "a"))
    assert leader.ask(request()) is PARK
    assert leader.ask(request(epoch=1)) is PARK
    leader.propose(AllocateTimestamps(1))
    leader.commit(2)
    # The grant is applied; it does not matter that a timestamp command is not.
    assert refused(answer(leader.ask(request()))) == ("FENCED", {"epoch": "1", "holder": "a"})
    assert leader.ask(request(epoch=1)) is ADMIT
    assert leader.commit()[-1] == landed(2)


def test_g9_an_older_epoch_is_refused_without_waiting(leader: Leader) -> None:
    leader.run(AcquireWriter(APP, False, 0, False, "a"))
    leader.run(AcquireWriter(APP, False, 1, False, "b"))
    leader.propose(ReleaseWriter(APP, False, 2))
    assert refused(answer(leader.ask(request(epoch=1))))[0] == "FENCED"
    assert leader.ask(request(epoch=2)) is PARK
    leader.commit()
    assert refused(answer(leader.ask(request(epoch=2)))) == ("FENCED", {"epoch": "2", "holder": ""})


def test_an_expected_lsn_is_judged_against_the_tail(leader: Leader) -> None:
    """INV-ADMIT-NEXT: a block with a wrong expected LSN is parked while anything is uncommitted."""
    assert leader.ask(request(5, expected=1)) is ADMIT
    assert leader.ask(request(2, expected=6)) is ADMIT
    # Uncommitted blocks, which another leader might not have, take both LSNs.
    assert leader.ask(request(expected=6)) is PARK
    assert leader.ask(request(expected=1)) is PARK
    # Wrong in every future, but which LSN is next is not known either.
    assert leader.ask(request(expected=100)) is PARK
    leader.commit()
    beyond = leader.ask(request(expected=100))
    assert refused(answer(beyond)) == ("WRONG_EXPECTED_LSN", {"next": "8"})
    assert refused(answer(leader.ask(request(expected=6)))) == ("WRONG_EXPECTED_LSN", {"next": "8"})
    assert leader.ask(request(expected=8)) is ADMIT


def test_inv_admit_next_a_wrong_expectation_waits_once_however_busy_the_log_is(
    leader: Leader,
) -> None:
    """INV-ADMIT-NEXT."""
    leader.ask(request(5))
    assert leader.ask(request(expected=3)) is PARK
    leader.commit()
    leader.ask(request(2))
    # Another client appends all the time; the blocks in front of this one are counted.
    again = leader.admission.admit(request(expected=3), leader.log.next_lsn, waited=True)
    assert refused(answer(again)) == ("WRONG_EXPECTED_LSN", {"next": "6"})
    # A block that depends on the tail waits for it all the same.
    taken = leader.admission.admit(request(expected=6), leader.log.next_lsn, waited=True)
    assert taken is PARK


def test_a_new_term_forgets_the_tail_of_the_old_one(leader: Leader) -> None:
    session = leader.run(OpenSession(APP, NONCE))
    leader.ask(request(session=session, sequence=1))
    leader.propose(AcquireWriter(APP, False, 0, False, "a"))
    # Another leader overwrote both entries.
    leader.tail.clear()
    leader.log.index, leader.log.next_lsn = (
        leader.log.rsm.state.applied_index,
        leader.log.rsm.state.next_lsn,
    )
    leader.admission.reset()
    assert leader.ask(request(session=session, sequence=1)) is ADMIT
    assert leader.commit() == [landed(1)]


def test_after_a_dropped_proposal_everything_waits_for_the_log_to_be_applied(
    leader: Leader,
) -> None:
    session = leader.run(OpenSession(APP, NONCE))
    leader.ask(request(session=session, sequence=1))
    last_index = leader.log.index
    leader.admission.appended(request(session=session, sequence=2), leader.log.next_lsn)
    leader.admission.dropped(last_index)
    assert leader.ask(request(session=session, sequence=2)) is PARK
    leader.commit()
    assert leader.ask(request(session=session, sequence=2)) is ADMIT
    assert leader.commit() == [landed(2)]


def test_a_full_table_of_gaps_stops_appends(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = leader.run(OpenSession(APP, NONCE))
    leader.ask(request(session=session, sequence=1))
    leader.commit()
    for _ in range(3):
        leader.log.append(epoch=8)
    monkeypatch.setattr(admission_module, "REJECTED_RANGES_MAX", 3)
    assert refused(answer(leader.ask(request())))[0] == "BUSY"
    # Nothing is lost by that: a request that needs no LSN is still answered.
    again = leader.ask(request(session=session, sequence=1))
    assert answer(again) == landed(1, duplicate=True)


def test_a_block_without_records_is_refused(leader: Leader) -> None:
    assert refused(answer(leader.ask(request(0))))[0] == "INVALID_ARGUMENT"


def test_commands_are_admitted_unless_no_state_could_accept_them(leader: Leader) -> None:
    assert leader.admission.admit_command(encode(SetHold(APP, False, Lsn(0), "x"))) is ADMIT
    assert refused(answer(leader.admission.admit_command(b"nonsense")))[0] == "INVALID_ARGUMENT"


def test_what_is_remembered_of_sessions_stays_bounded(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission_module, "SESSIONS_MAX", 8)
    assert SESSIONS_MAX > 8
    for _ in range(100):
        session = leader.run(OpenSession(APP, NONCE))
        assert leader.ask(request(session=session, sequence=1)) is ADMIT
        leader.commit()
    assert len(leader.admission._tail) <= 16


@pytest.mark.parametrize("seed", range(40))
def test_inv_rsm_admit_what_is_admitted_is_applied_whatever_is_in_the_tail(seed: int) -> None:
    """INV-RSM-ADMIT under random traffic, commits of any length and lost tails: no admitted block
    ever becomes a gap, and a refusal by applied state has the reason that apply would have given.
    """
    rng = random.Random(seed)
    leader = Leader()
    sessions = [leader.run(OpenSession(APP, NONCE)) for _ in range(3)]
    parks = refusals = 0
    for _ in range(400):
        action = rng.random()
        if action < 0.65:
            session = rng.choice([0, 0, *sessions])
            row = leader.log.rsm.state.sessions.get(SessionId(session))
            last = row.last_sequence if row is not None else 0
            item = request(
                rng.randint(1, 4),
                session=session,
                sequence=max(1, last + rng.randint(-1, 6)) if session else 0,
                epoch=max(0, leader.log.status.writer_epoch - rng.choice([0, 0, 0, 1, -1])),
                expected=rng.choice([0, 0, 0, leader.log.next_lsn, leader.log.rsm.state.next_lsn]),
            )
            decision = leader.ask(item)
            parks += decision is PARK
            if isinstance(decision, Refuse) and not leader.tail:
                twin = ShardDriver()
                twin.rsm.recover_from_snapshot(leader.log.rsm.save_snapshot())
                twin.index, twin.next_lsn = leader.log.index, leader.log.next_lsn
                (applied,) = twin.append_all(item)
                assert type(applied) is type(decision.outcome)
                assert getattr(applied, "reason", applied) == getattr(
                    decision.outcome, "reason", decision.outcome
                )
                refusals += 1
        elif action < 0.72:
            epoch = leader.log.status.writer_epoch
            grant, release = (
                AcquireWriter(APP, False, epoch, False, "a"),
                ReleaseWriter(APP, False, max(epoch, 1)),
            )
            leader.propose(grant if rng.random() < 0.5 else release)
        elif action < 0.76:
            leader.propose(AllocateTimestamps(1))
        elif action < 0.97:
            leader.commit(rng.randint(0, len(leader.tail)))
        elif action < 0.985:
            leader.tail.clear()
            leader.log.index = leader.log.rsm.state.applied_index
            leader.log.next_lsn = leader.log.rsm.state.next_lsn
            leader.admission.reset()
        else:
            leader.commit()
            leader.admission.tail_applied()
        assert leader.log.status.rejected_range_count == 0
    assert parks > 0
    assert refusals > 0
