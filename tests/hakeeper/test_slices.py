"""A snapshot of shard 0 is written and read in slices. It names INV-HK-SLICES."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from logservice.entry import Entry
from logservice.envelope import ProposalId
from logservice.hakeeper import slices, state
from logservice.hakeeper.commands.verbs import SetStoreMode, StoreMode
from logservice.hakeeper.rsm import HAKeeperRsm
from logservice.hakeeper.state import State
from logservice.hakeeper.stores.holdings import built, holdings
from logservice.ids import ShardId
from logservice.outcome import Outcome
from logservice.snapshot import SnapshotCorrupt
from logservice.versions import KNOWN, ONLY_FIRST, VersionRange
from tests.hakeeper.campaign import cases
from tests.hakeeper.model import Model
from tests.hakeeper.random_states import random_state


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_REPORTS", 2)
    monkeypatch.setattr(slices, "SLICE_BYTES", 0)


def read(data: bytes) -> tuple[State, int]:
    """The state, and in how many slices it was read."""
    steps = slices.load_in_slices(data)
    for number in range(10_000):
        try:
            next(steps)
        except StopIteration as ended:
            return ended.value, number + 1
    raise AssertionError("it does not end")


@pytest.mark.parametrize("version", [1, 2])
def test_slices_are_the_snapshot(version: int) -> None:
    written = taken = 0
    for seed in cases(60):
        here = random_state(random.Random(seed), version)
        pieces = list(slices.save_in_slices(here))
        whole = state.save(here)
        assert b"".join(pieces) == whole
        found, steps = read(whole)
        assert found == here
        written, taken = max(written, len(pieces)), max(taken, steps)
    assert written >= 3
    assert taken >= 4


def test_a_table_of_many_stores() -> None:
    """Its head is longer from sixteen rows on."""
    one = next(iter(random_state(random.Random(4)).stores.values()))
    for count in (0, 1, 15, 16, 300):
        here = State(stores={f"s{number}": one for number in range(count)})  # type: ignore[misc]
        whole = b"".join(slices.save_in_slices(here))
        assert whole == state.save(here)
        assert read(whole)[0] == here


def verdict(data: bytes, *, sliced: bool) -> State | None:
    try:
        return read(data)[0] if sliced else state.load(data)
    except SnapshotCorrupt:
        return None


def test_slices_refuse_what_the_whole_refuses() -> None:
    refused = 0
    for seed in cases(40):
        dice = random.Random(seed)
        whole = bytearray(state.save(random_state(dice, dice.choice([1, 2]))))
        for _ in range(8):
            damaged = bytearray(whole)
            damaged[dice.randrange(len(damaged))] = dice.choice([0, 0x80, 0xC0, 0xDC, 0xFF])
            if dice.random() < 0.3:
                del damaged[dice.randrange(len(damaged)) :]
            found = verdict(bytes(damaged), sliced=True)
            assert found == verdict(bytes(damaged), sliced=False)
            refused += found is None
    assert refused > 40
    assert verdict(b"", sliced=True) == State()


class Copied(Model):
    """A model of which a snapshot is taken all the time, a slice after each entry."""

    def __init__(self, versions: VersionRange) -> None:
        self._slices: Iterator[bytes] = iter(())
        self._taken: list[bytes] = []
        self._wanted = b""
        self.compared = self.late = 0
        super().__init__(5, versions=versions)
        update = self.rsm.update

        def watched(entry: Entry) -> list[tuple[ProposalId, Outcome]]:
            outcomes = list(update(entry))
            self._take()
            return outcomes

        self.rsm.update = watched  # type: ignore[method-assign]

    def _take(self) -> None:
        piece = next(self._slices, None)
        if piece is not None:
            self._taken.append(piece)
            return
        assert b"".join(self._taken) == self._wanted
        self.compared += 1
        self.late += self._wanted not in (b"", self.rsm.save_snapshot())
        self._wanted, self._taken = self.rsm.save_snapshot(), []
        self._slices = self.rsm.save_in_slices()


@pytest.mark.parametrize("versions", [ONLY_FIRST, KNOWN])
def test_entries_are_applied_between_two_slices(versions: VersionRange) -> None:
    """INV-HK-SLICES."""
    model = Copied(versions)
    model.start(shards=3)
    model.kill("s1")
    model.run(400)
    if versions == KNOWN:
        model.propose(SetStoreMode("s2", StoreMode.DRAINING, "", False))
    model.revive("s1")
    model.run(200)
    assert model.late > 100


def test_what_was_prepared_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(4, versions=KNOWN)
    model.start(shards=3)
    data, other = model.rsm.save_snapshot(), HAKeeperRsm()
    assert len(list(other.prepare(data))) > 1
    with monkeypatch.context() as patched:
        patched.setattr(state, "load", None)
        assert other.check_snapshot(data).applied == model.state.index
        other.recover_from_snapshot(data)
        kept = holdings(other.state)
    assert other.state == model.state
    assert kept.restless(other.state) == built(other.state).restless(other.state)
    assert list(HAKeeperRsm().prepare(b"")) == []
    assert list(HAKeeperRsm().prepare(b"\x06garbage")) == []


def test_what_was_prepared_is_dropped_when_the_log_is_past_it() -> None:
    model = Model(4, versions=KNOWN)
    model.start(shards=1)
    data = model.rsm.save_snapshot()
    for _ in model.rsm.prepare(data):
        pass
    before = model.rsm.state
    model.run(1)
    model.rsm.recover_from_snapshot(data)
    assert model.rsm.state is not before
    assert model.rsm.save_snapshot() == data
    assert ShardId(1) in model.rsm.state.shards
