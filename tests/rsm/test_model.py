"""LogRsm against a dumb dictionary model: random traffic, small limits, snapshots in the middle.

Every answer and every state must be the model's. A machine that was restored from a snapshot must
go on like the one that was not, and replaying the log must give the same bytes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from logservice_wire.errors import Reason

from logservice.ids import Index, Lsn
from logservice.outcome import Applied, Outcome
from logservice.owner import Author, owner_digest
from logservice.rsm import log_rsm, sessions, snapshot_codec
from logservice.rsm.commands import (
    AcquireWriter,
    AllocateTimestamps,
    Command,
    Connect,
    ExpireHold,
    OpenSession,
    ReleaseHold,
    ReleaseWriter,
    RenewHold,
    Retain,
    SetHold,
    SetHoldFor,
    Truncate,
)
from logservice.rsm.log_rsm import LogRsm
from tests.owners import NONCE, STORE
from tests.rsm.dictionary_model import Answer, DictionaryModel
from tests.rsm.shard_driver import ShardDriver, request

NAMES = ("a", "bb", "ü")
IDENTITIES = ("app", "other", "third")
Step = tuple[str, tuple[int, ...]]

small = st.integers(0, 4)
who = st.sampled_from([0, 0, 0, 0, 1, 2])
override = st.sampled_from([0, 0, 0, 1])
block = st.tuples(
    st.integers(1, 3),
    small,
    st.integers(-6, 2),
    st.sampled_from([0, 0, 0, 0, -1, 1]),
    small,
    who,
    st.sampled_from([0, 0, 0, 1]),
)
steps: st.SearchStrategy[list[Step]] = st.lists(
    st.one_of(
        st.tuples(st.just("append"), block),
        st.tuples(st.just("append"), block),
        st.tuples(st.just("append"), block),
        st.tuples(st.just("open"), st.tuples(who)),
        st.tuples(
            st.just("truncate"), st.tuples(st.integers(-2, 9), st.sampled_from([0, 0, 1]), who)
        ),
        st.tuples(st.just("retain"), st.tuples(st.integers(-2, 9))),
        st.tuples(st.just("hold"), st.tuples(small, st.integers(-2, 9), who, override)),
        st.tuples(
            st.just("hold for"),
            st.tuples(small, st.integers(-2, 9), who, override, st.sampled_from([0, 60])),
        ),
        st.tuples(st.just("renew"), st.tuples(small, who)),
        st.tuples(st.just("expire"), st.tuples(small, st.sampled_from([0, 0, 1]))),
        st.tuples(st.just("unhold"), st.tuples(small, who, override)),
        st.tuples(
            st.just("acquire"),
            st.tuples(st.sampled_from([0, 0, 1]), st.integers(0, 1), who, override),
        ),
        st.tuples(st.just("release"), st.tuples(st.sampled_from([0, 0, 1]), who, override)),
        st.tuples(st.just("allocate"), st.tuples(st.integers(1, 50))),
        st.tuples(st.just("connect"), st.tuples()),
        st.tuples(st.just("noop"), st.tuples()),
        st.tuples(st.just("snapshot"), st.tuples()),
    ),
    min_size=10,
    max_size=60,
)


def author(who: int) -> Author:
    return Author(IDENTITIES[who], STORE)


@contextmanager
def small_limits() -> Iterator[DictionaryModel]:
    """Limits that sixty steps can reach."""
    model = DictionaryModel(
        window=3,
        sessions_max=4,
        owned_max=3,
        idle_entries=6,
        holds_max=2,
        holds_owned_max=1,
        rank=owner_digest,
    )
    with (
        mock.patch.object(sessions, "SESSION_WINDOW", model.window),
        mock.patch.object(sessions, "SESSIONS_MAX", model.sessions_max),
        mock.patch.object(sessions, "SESSIONS_PER_OWNER_MAX", model.owned_max),
        mock.patch.object(sessions, "SESSION_IDLE_ENTRIES", model.idle_entries),
        mock.patch.object(snapshot_codec, "SESSION_WINDOW", model.window),
        mock.patch.object(log_rsm, "HOLDS_MAX", model.holds_max),
        mock.patch.object(log_rsm, "HOLDS_PER_OWNER_MAX", model.holds_owned_max),
    ):
        yield model


def answer_of(outcome: Outcome) -> Answer:
    if isinstance(outcome, Applied):
        numbers: dict[str, int | str] = {
            "lsn": outcome.lsn,
            "count": outcome.count,
            "value": outcome.value,
            "duplicate": int(outcome.duplicate),
        }
        return "ok", numbers
    if outcome.reason is Reason.TOO_LARGE:
        return outcome.reason.value, {}
    words = {"holder", "name", "owner", "role"}
    numeric = {k: v if k in words else int(v) for k, v in outcome.metadata.items()}
    return outcome.reason.value, numeric


class Pair:
    """The machine and the model get the same entries. `seen`: the reasons of all answers so far."""

    def __init__(self, model: DictionaryModel) -> None:
        self.shard = ShardDriver()
        self.model = model
        self.seen: Counter[str] = Counter()

    def step(self, kind: str, numbers: tuple[int, ...]) -> None:
        """Resolve the numbers, which are relative to the present state, and take the step."""
        model = self.model
        if kind == "snapshot":
            data = self.shard.rsm.save_snapshot()
            self.shard.rsm.recover_from_snapshot(data)
            assert self.shard.rsm.save_snapshot() == data
            return
        model.entry()
        match kind, numbers:
            case "append", (count, chosen, ahead, epoch, expected, who, other):
                self._append(count, chosen, ahead, epoch, expected, who, other)
            case "noop", ():
                self.shard.noop()
            case "open", (who,):
                by = author(who)
                self._command(OpenSession(by, NONCE), model.open_session(by.identity))
            case "truncate", (ahead, older, who):
                lsn, epoch, by = max(0, model.truncated + ahead), self._epoch(-older), author(who)
                expected_answer = model.truncate(lsn, epoch, by.identity)
                self._command(Truncate(by, Lsn(lsn), epoch), expected_answer)
            case "retain", (ahead,):
                lsn = max(1, model.truncated + ahead)
                self._command(Retain(3, Lsn(lsn)), model.retain(lsn))
            case "hold", (name, ahead, who, override):
                lsn, text = max(0, model.truncated + ahead), NAMES[name % 3]
                by, forced = author(who), bool(override)
                expected_answer = model.set_hold(text, lsn, by.identity, forced)
                self._command(SetHold(by, forced, Lsn(lsn), text), expected_answer)
            case "hold for", (name, ahead, who, override, ttl):
                lsn, text = max(0, model.truncated + ahead), NAMES[name % 3]
                by, forced = author(who), bool(override)
                expected_answer = model.set_hold(text, lsn, by.identity, forced, ttl)
                self._command(SetHoldFor(by, forced, Lsn(lsn), ttl, text), expected_answer)
            case "renew", (name, who):
                by, text = author(who), NAMES[name % 3]
                self._command(RenewHold(by, text), model.renew_hold(text, by.identity))
            case "expire", (name, older):
                text = NAMES[name % 3]
                revision = max(1, model.hold_times.get(text, (1, 0))[0] - older)
                before = text in model.holds
                expected_answer = model.expire_hold(text, revision)
                self._command(ExpireHold(Index(revision), text), expected_answer)
                self.seen["expired"] += before and text not in model.holds
            case "unhold", (name, who, override):
                by, forced, text = author(who), bool(override), NAMES[name % 3]
                expected_answer = model.release_hold(text, by.identity, forced)
                self._command(ReleaseHold(by, forced, text), expected_answer)
            case "acquire", (older, takeover, who, override):
                epoch, by, forced = self._epoch(-older), author(who), bool(override)
                holder = f"w{model.index}"
                command = AcquireWriter(by, forced, epoch, bool(takeover), holder)
                expected_answer = model.acquire(epoch, bool(takeover), holder, by.identity, forced)
                self._command(command, expected_answer)
            case "release", (older, who, override):
                epoch, by, forced = self._epoch(-older), author(who), bool(override)
                expected_answer = model.release(epoch, by.identity, forced)
                self._command(ReleaseWriter(by, forced, epoch), expected_answer)
            case "allocate", (count,):
                self._command(AllocateTimestamps(count), model.allocate(count))
            case _:
                self._command(Connect(), model.connect())
        self._compare()

    def _append(
        self, count: int, chosen: int, ahead: int, epoch: int, expected: int, who: int, other: int
    ) -> None:
        """One entry with two blocks, the second of them without conditions but the epoch."""
        model = self.model
        known = [0, 0, *model.sessions, 999]
        session = known[chosen % len(known)]
        row = model.sessions.get(session)
        sequence = max(0, (len(row.accepted) if row else 0) + 1 + min(ahead, 1))
        want = {0: 0, 1: 0, 2: model.next_lsn, 3: model.next_lsn + 1}.get(expected, 1)
        number = self._epoch(epoch)
        by = author(who)
        # Where a block has its checksum; a repetition carries the same block, or an `other` one.
        block = f"block {sequence} of {session}, {other}: long enough".encode().ljust(40)
        block = block[:16] + bytes((sequence & 255, other, 0, 0)) + block[20:]
        if row is not None and 1 <= sequence <= len(row.accepted) and not other:
            block = row.accepted[sequence - 1][2]
        claim = by.claim(NONCE)
        outcomes = self.shard.append_all(
            request(
                count,
                session=session,
                sequence=sequence,
                epoch=number,
                expected=want,
                claim=claim,
                block=block,
            ),
            request(1, epoch=number, claim=claim),
        )
        expected_answers = [
            model.append(count, session, sequence, number, want, by.identity, block, behind=1),
            model.append(1, 0, 0, number, 0, by.identity, b"r"),
        ]
        assert [answer_of(outcome) for outcome in outcomes] == expected_answers
        self.seen.update(reason for reason, _ in expected_answers)
        self.seen["repeated"] += bool(expected_answers[0][1].get("duplicate"))

    def _command(self, command: Command, expected: Answer) -> None:
        assert answer_of(self.shard.command(command)) == expected, command
        self.seen[f"{type(command).__name__} {expected[0]}"] += 1

    def _epoch(self, offset: int) -> int:
        return max(0, len(self.model.grants) + offset)

    def _compare(self) -> None:
        status, model = self.shard.status, self.model
        assert (status.applied_index, status.next_lsn) == (model.index, model.next_lsn)
        assert status.truncated_lsn == model.truncated < status.first_lsn
        assert status.requested_truncation_lsn == model.requested
        assert {hold.name: hold.lsn for hold in status.holds} == model.holds
        assert {hold.name: hold.owner for hold in status.holds} == model.hold_owners
        assert {hold.name: hold[3:] for hold in status.holds} == model.hold_times
        assert {"epoch": status.writer_epoch, "holder": status.writer_holder} == model.writer
        assert status.session_count == len(model.sessions)
        gaps = self.shard.rsm.state.rejected_between(Lsn(1), Lsn(model.next_lsn))
        assert isinstance(gaps, tuple)
        assert [(g.first_lsn, g.record_count, g.reason.value) for g in gaps] == (
            model.gaps_above_truncation()
        )


@settings(
    max_examples=400,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(steps)
def test_g2_g4_g5_g9_every_answer_is_the_models(taken: list[Step]) -> None:
    with small_limits() as model:
        pair = Pair(model)
        for kind, numbers in taken:
            pair.step(kind, numbers)
        replayed = LogRsm()
        for entry in pair.shard.entries:
            replayed.update(entry)
        assert replayed.save_snapshot() == pair.shard.rsm.save_snapshot()


@settings(max_examples=100, deadline=None, derandomize=True)
@given(steps, st.integers(0, 60))
def test_inv_rsm_canon_a_replica_restored_anywhere_ends_with_the_same_bytes(
    taken: list[Step], cut: int
) -> None:
    with small_limits() as model:
        pair = Pair(model)
        for kind, numbers in taken:
            pair.step(kind, numbers)
        entries = pair.shard.entries
        first, second = LogRsm(), LogRsm()
        for entry in entries[:cut]:
            first.update(entry)
        second.recover_from_snapshot(first.save_snapshot())
        outcomes: list[list[object]] = [[], []]
        for entry in entries[cut:]:
            for machine, log in zip((first, second), outcomes, strict=True):
                log.extend(machine.update(entry))
        assert outcomes[0] == outcomes[1]
        assert first.save_snapshot() == second.save_snapshot()


def random_step(rng: random.Random) -> Step:
    """Steps like those of `steps`, of which long runs stay lively."""
    roll = rng.random()
    if roll < 0.6:
        ahead = rng.choice([0, 0, 0, 0, -1, -2, -3, -5, 1])
        epoch = rng.choice([0] * 12 + [-1, 1])
        who, other = rng.choice([0] * 8 + [1, 2]), int(rng.random() < 0.1)
        rest = (rng.randrange(5), who, other)
        return "append", (rng.randint(1, 3), rng.randrange(7), ahead, epoch, *rest)
    if roll < 0.62:
        return "retain", (rng.randint(-2, 15),)
    kind = rng.choice(
        [
            "open",
            "truncate",
            "hold",
            "hold for",
            "renew",
            "expire",
            "unhold",
            "acquire",
            "release",
            "allocate",
            "noop",
            "snapshot",
        ]
    )
    rare = int(rng.random() < 0.2)
    who, override = rng.choice([0, 0, 1, 2]), int(rng.random() < 0.3)
    numbers = {
        "open": (who,),
        "truncate": (rng.randint(-2, 15), rare, rng.choice([0, 0, 0, who])),
        "hold": (rng.randrange(4), rng.randint(-2, 9), who, override),
        "hold for": (
            rng.randrange(4),
            rng.randint(-2, 9),
            who,
            override,
            rng.choice([0, 60, 60]),
        ),
        "renew": (rng.randrange(4), who),
        "expire": (rng.randrange(4), rare),
        "unhold": (rng.randrange(4), who, override),
        "acquire": (rare, int(rng.random() < 0.3), rng.choice([0, 0, 0, who]), override),
        "release": (0 if rng.random() < 0.1 else 1, who, override),
        "allocate": (rng.randint(1, 9),),
    }
    return kind, numbers.get(kind, ())


def test_g2_g4_g5_g9_long_runs_reach_every_answer() -> None:
    seen: Counter[str] = Counter()
    for seed in range(100):
        rng = random.Random(seed)
        with small_limits() as model:
            pair = Pair(model)
            for _ in range(150):
                pair.step(*random_step(rng))
            seen.update(pair.seen)
    expected = {
        "ok",
        "repeated",
        "SESSION_EXPIRED",
        "SEQUENCE_GAP",
        "FENCED",
        "WRONG_EXPECTED_LSN",
        "OpenSession ok",
        "OpenSession BUSY",
        "Truncate ok",
        "Truncate FENCED",
        "Truncate STALE_TRUNCATE",
        "Truncate BEYOND_TAIL",
        "Retain ok",
        "Retain BEYOND_TAIL",
        "SetHold ok",
        "SetHold HOLD_REFUSED",
        "SetHold BUSY",
        "ReleaseHold ok",
        "SetHoldFor ok",
        "SetHoldFor HOLD_REFUSED",
        "SetHoldFor PERMISSION_DENIED",
        "RenewHold ok",
        "RenewHold HOLD_LOST",
        "RenewHold PERMISSION_DENIED",
        "ExpireHold ok",
        "expired",
        "AcquireWriter ok",
        "AcquireWriter STALE_EPOCH",
        "ReleaseWriter ok",
        "ReleaseWriter STALE_EPOCH",
        "AllocateTimestamps ok",
        "SEQUENCE_REUSED",
        "SetHold PERMISSION_DENIED",
        "SetHold TOO_LARGE",
        "ReleaseHold PERMISSION_DENIED",
        "AcquireWriter PERMISSION_DENIED",
        "ReleaseWriter PERMISSION_DENIED",
    }
    assert {name for name in expected if seen[name] < 5} == set()
