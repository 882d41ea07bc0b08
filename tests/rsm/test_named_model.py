"""Named sessions against a dumb model: attempts at the same work, in any order, late and differing.

Each step is of some process: it opens a name for an epoch, with one of two contents, or appends the
next block of what it has opened, an earlier one once more, or one too far ahead, or lets a name go.
Answers have to be the model's; and whatever happens, the log has of each epoch of each name the
first blocks of one content, each once and in their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest import mock

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from logservice_wire.errors import Reason

from logservice.bounds import SESSION_EPOCH_BITS
from logservice.ids import Index, SessionId
from logservice.outcome import Outcome, Rejected
from logservice.owner import Author
from logservice.rsm import named_sessions, sessions, snapshot_codec
from logservice.rsm.commands import ForgetSession, OpenNamedSession, OpenSession
from logservice.rsm.log_rsm import LogRsm
from logservice.rsm.named_sessions import ANSWER, nonce_of
from logservice.rsm.snapshot_codec import encode_state
from tests.owners import NONCE, STORE
from tests.rsm.shard_driver import ShardDriver

WINDOW, NAMED_MAX = 3, 3
AUTHORS = [Author(one, STORE) for one in ("app", "other")]
NAMES = ("spark/q/0", "spark/q/1", "spark/q/2")
CONTENTS = (b"x" * 32, b"y" * 32)

who, name, content = st.integers(0, 1), st.integers(0, 2), st.integers(0, 1)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("open"), who, name, st.integers(-1, 2), content),
        st.tuples(st.just("append"), who, name, st.integers(-3, 2), content),
        st.tuples(st.just("append"), who, name, st.just(1), content),
        st.tuples(st.just("late"), who, name, st.integers(-2, 2), content),
        st.tuples(st.just("other"), who, name, st.just(0), content),
        st.tuples(st.just("forget"), who, name, st.integers(0, 1), content),
        st.tuples(st.just("snapshot"), who, name, st.just(0), content),
    ),
    min_size=10,
    max_size=60,
)


@dataclass
class Row:
    """What the model knows of a name. `lsns`: of the blocks of its epoch."""

    session: int
    epoch: int
    content: bytes
    stamp_us: int
    lsns: list[int] = field(default_factory=list)
    forgotten: int = 0


@contextmanager
def small_limits() -> Iterator[None]:
    with (
        mock.patch.object(sessions, "SESSION_WINDOW", WINDOW),
        mock.patch.object(snapshot_codec, "SESSION_WINDOW", WINDOW),
        mock.patch.object(named_sessions, "NAMED_SESSIONS_MAX", NAMED_MAX),
    ):
        yield


def told(outcome: Outcome) -> object:
    if isinstance(outcome, Rejected):
        return outcome.reason
    if outcome.data:
        return (outcome.value, *ANSWER.unpack(outcome.data))
    return outcome.lsn, outcome.duplicate


class Pair:
    """The machine and the model."""

    def __init__(self) -> None:
        self.log = ShardDriver()
        self.rows: dict[tuple[int, int], Row] = {}
        self.appended: dict[tuple[int, int, int], list[bytes]] = {}
        """Blocks in the log by who, name and epoch."""

    def step(self, kind: str, who: int, name: int, number: int, content: int) -> None:
        row = self.rows.get((who, name))
        match kind:
            case "open":
                self._open(who, name, max(0, (row.epoch if row else 0) + number), content)
            case "append" if row is not None:
                self._append(who, name, row.epoch, max(1, len(row.lsns) + number), content)
            case "late" if row is not None:
                self._append(who, name, max(0, row.epoch + number), 1, content)
            case "other":
                self.log.value(OpenSession(AUTHORS[who], NONCE))
            case "forget":
                self._forget(who, row, number)
            case "snapshot":
                data = self.log.rsm.save_snapshot()
                self.log.rsm.recover_from_snapshot(data)
                assert self.log.rsm.save_snapshot() == data

    def _open(self, who: int, name: int, epoch: int, content: int) -> None:
        row, stamp = self.rows.get((who, name)), 1000 + self.log.index
        found = self.log.command(
            OpenNamedSession(AUTHORS[who], epoch, 0, stamp, CONTENTS[content], NAMES[name])
        )
        live = [one for one, row in self.rows.items() if not row.forgotten]
        full = sum(one == who for one, _ in live) >= NAMED_MAX - len(live)
        late = row is not None and epoch < row.epoch + bool(row.forgotten)
        if late:
            assert told(found) == Reason.SESSION_EXPIRED
        elif (row is None or row.forgotten) and full:
            assert told(found) == Reason.TOO_LARGE
        elif row is not None and epoch == row.epoch and CONTENTS[content] != row.content:
            assert told(found) == Reason.SEQUENCE_REUSED
        elif row is not None and epoch == row.epoch:
            assert told(found) == (row.session, len(row.lsns), row.stamp_us)
        else:
            if row is None and len(self.rows) >= NAMED_MAX:
                gone = min(
                    (key[0] != who, one.forgotten, key)
                    for key, one in self.rows.items()
                    if one.forgotten
                )
                del self.rows[gone[2]]
            session = row.session if row is not None else self.log.index
            self.rows[who, name] = Row(session, epoch, CONTENTS[content], stamp)
            self.appended.pop((who, name, epoch), None)
            assert told(found) == (session, 0, stamp)

    def _forget(self, who: int, row: Row | None, other: int) -> None:
        session = SessionId(999 if row is None else row.session)
        author = AUTHORS[who ^ other]
        found = self.log.command(ForgetSession(author, False, session, Index(self.log.index)))
        if row is None:
            assert told(found) == (0, True)
        elif other:
            assert told(found) == Reason.PERMISSION_DENIED
        else:
            assert told(found) == (0, bool(row.forgotten))
            row.forgotten = row.forgotten or self.log.index

    def _append(self, who: int, name: int, epoch: int, k: int, content: int) -> None:
        row = self.rows[who, name]
        data = CONTENTS[content] + b"%d" % k
        lsn = self.log.next_lsn
        claim = AUTHORS[who].claim(nonce_of(NAMES[name]))
        found = told(
            self.log.append(
                session=row.session,
                sequence=epoch << SESSION_EPOCH_BITS | k,
                claim=claim,
                block=data,
            )
        )
        known = self.appended.setdefault((who, name, epoch), [])
        if epoch < row.epoch or row.forgotten:
            assert found == Reason.SESSION_EXPIRED
        elif epoch > row.epoch or k > len(row.lsns) + 1:
            assert found == Reason.SEQUENCE_GAP
        elif k <= len(row.lsns) - WINDOW:
            assert found == Reason.SESSION_EXPIRED
        elif k <= len(row.lsns):
            again = (row.lsns[k - 1], True)
            assert found == (again if known[k - 1] == data else Reason.SEQUENCE_REUSED)
        else:
            assert found == (lsn, False)
            row.lsns.append(lsn)
            known.append(data)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps)
def test_named_sessions_are_the_model(taken: list[tuple[str, int, int, int, int]]) -> None:
    """INV-RSM-NAMED, INV-RSM-FORGOTTEN."""
    with small_limits():
        pair = Pair()
        for one in taken:
            pair.step(*one)
        assert len(pair.log.rsm.state.named) == len(pair.rows)
        again = LogRsm()
        for entry in pair.log.entries:
            again.update(entry)
        assert encode_state(again.state) == encode_state(pair.log.rsm.state)


def test_attempts_that_open_first_never_mix() -> None:
    """A process appends only what it has opened, as writers do; whichever of two is first."""
    with small_limits():
        for first in (0, 1):
            pair = Pair()
            pair.step("open", 0, 0, 1, first)
            pair.step("append", 0, 0, 1, first)
            pair.step("open", 0, 0, 0, 1 - first)  # is refused, so it appends nothing
            pair.step("open", 0, 0, 0, first)
            pair.step("append", 0, 0, 0, first)
            pair.step("append", 0, 0, 1, first)
            blocks = pair.appended[0, 0, 1]
            assert blocks == [CONTENTS[first] + b"1", CONTENTS[first] + b"2"]
