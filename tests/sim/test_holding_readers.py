"""Readers' holds in the simulated world: what is noticed of them, and that they lapse."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from logservice_wire.reader_hold import PREFIX

from logservice import bounds
from logservice.entry import Entry, EntryKind
from logservice.envelope import ProposalId, encode_command
from logservice.ids import Index, Lsn, ShardId, Term
from logservice.rsm.commands import ExpireHold, encode
from logservice.rsm.log_rsm import LogRsm
from logservice.rsm.state import Hold
from logservice.sim.campaign import world_of
from logservice.sim.checkers.holds import ReadersHolds
from logservice.sim.config import SimConfig, make_hold_readers
from logservice.sim.oracle import Oracle
from logservice.sim.world import World

SHARD = ShardId(1)
NAME = f"{PREFIX}r"
TTL_S = 5


class Watched:
    """A log with holds of readers that a checker sees, in a world without faults."""

    def __init__(self) -> None:
        config = SimConfig(1, calm=True, hold_readers=True, clock_rates=(1.1, 0.9))
        self.world = SimpleNamespace(config=config, now_s=100.0)
        self.store = cast(Any, SimpleNamespace(store_id="s1", world=self.world))
        self.rsm = LogRsm()
        self.said: list[str] = []
        self.checker = ReadersHolds(Oracle(), lambda _, detail: self.said.append(detail))
        self.index, self.lsn = 0, 1

    def entry(self, payload: bytes, count: int = 0) -> list[str]:
        self.index += 1
        kind = EntryKind.BLOCK if count else EntryKind.COMMAND
        entry = Entry(Term(1), Index(self.index), Lsn(self.lsn), count, kind, payload)
        self.lsn += count
        self.checker.applied(self.store, SHARD, entry, self.rsm)
        said, self.said = self.said, []
        return said

    def put(self, name: str = NAME, lsn: int = 1, ttl_s: int = TTL_S) -> list[str]:
        """Set it, or renew it."""
        self.rsm.state.put_hold(name, Hold(Lsn(lsn), "reader", Index(self.index + 1), ttl_s))
        return self.entry(b"")

    def expire(self) -> list[str]:
        self.rsm.state.drop_hold(NAME)
        command = encode(ExpireHold(Index(1), NAME))
        return self.entry(encode_command(ProposalId(1, 1), command))

    def sample(self) -> list[str]:
        raft = SimpleNamespace(term=1)
        replica = SimpleNamespace(shard=SHARD, log_rsm=self.rsm, ready_to_lead=True, raft=raft)
        self.store.replicas = lambda: [replica]
        self.checker.sample([self.store])
        said, self.said = self.said, []
        return said


@pytest.fixture
def watched() -> Watched:
    made = Watched()
    assert made.entry(b"x" * 100, 1) == made.put() == []
    return made


def test_inv_reader_hold_one_may_go_when_its_time_is_over_and_not_before(watched: Watched) -> None:
    """INV-READER-HOLD, by the fastest clock."""
    watched.world.now_s += TTL_S / 1.1 - 0.1
    [said] = watched.expire()
    assert "expired, 0.1" in said
    assert watched.put() == []
    watched.world.now_s += TTL_S / 1.1 + 0.001
    assert watched.expire() == []


def test_one_may_go_that_stood_for_long_and_was_renewed(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """READER_HOLD_STANDS_S_MAX."""
    monkeypatch.setattr(bounds, "READER_HOLD_STANDS_S_MAX", 9.0)
    for _ in range(9):
        watched.world.now_s += 1.0
        assert watched.put() == []
    assert watched.expire() == []
    assert watched.put() == []
    watched.world.now_s += 1.0
    assert watched.put(lsn=2) == []
    watched.world.now_s += 4.0
    assert len(watched.expire()) == 1


def test_one_may_go_that_keeps_too_much(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """READER_HOLD_BYTES_MAX."""
    monkeypatch.setattr(bounds, "READER_HOLD_BYTES_MAX", 1000)
    assert watched.entry(b"x" * 500, 1) == []
    assert len(watched.expire()) == 1
    assert watched.put() == watched.entry(b"x" * 500, 1) == watched.expire() == []
    assert watched.put(lsn=2) == []
    watched.world.now_s += 0.1
    assert watched.entry(b"", 0) == watched.expire() == []


def test_other_holds_and_released_ones_are_not_looked_at(watched: Watched) -> None:
    assert watched.put("other") == []
    watched.rsm.state.drop_hold("other")
    watched.rsm.state.drop_hold(NAME)
    assert watched.entry(b"") == []


def test_more_than_may_be_and_one_that_does_not_expire(watched: Watched) -> None:
    """READER_HOLDS_PER_OWNER_MAX, READER_HOLD_TTL_S_MAX."""
    for number in range(1, bounds.READER_HOLDS_PER_OWNER_MAX):
        assert watched.put(f"{NAME}{number}") == []
    assert len(watched.put(f"{NAME}-more")) == 1
    watched.rsm.state.drop_hold(f"{NAME}-more")
    assert watched.entry(b"") == []
    assert len(watched.put(ttl_s=0)) == 1
    assert len(watched.put(ttl_s=bounds.READER_HOLD_TTL_S_MAX + 1)) == 1


def test_one_that_is_over_a_bound_and_does_not_go(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "READER_HOLD_STANDS_S_MAX", 9.0)
    assert watched.sample() == []
    watched.world.now_s += 15.0
    assert watched.sample() == []
    watched.world.now_s += 5.0
    [said] = watched.sample()
    assert "stands for 20.000 s" in said
    monkeypatch.setattr(bounds, "READER_HOLD_STANDS_S_MAX", 1e9)
    monkeypatch.setattr(bounds, "READER_HOLD_BYTES_MAX", 1000)
    for _ in range(20):
        assert watched.entry(b"x" * 100, 1) == []
    assert watched.sample() == []
    watched.world.now_s += 10.0
    [said] = watched.sample()
    assert "keeps" in said
    watched.world.config.calm = False
    assert watched.sample() == []


# --- whole worlds ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("stands_s", "size"), [(3.0, 0), (0.0, 1024)], ids=["stands", "bytes"])
def test_readers_holds_lapse_in_a_world(stands_s: float, size: int) -> None:
    before = bounds.READER_HOLD_STANDS_S_MAX, bounds.READER_HOLD_BYTES_MAX
    config = world_of(21, short=True, version=2)
    make_hold_readers(config)
    config.reader_hold_stands_s, config.reader_hold_bytes = stands_s, size
    report = World(config).run()
    assert report.violations == []
    assert report.counts["client readers' holds lapsed"] > 0
    assert bounds.READER_HOLD_STANDS_S_MAX == before[0] > 3
    assert bounds.READER_HOLD_BYTES_MAX == before[1] > 1024


def test_they_are_in_worlds_of_version_2_without_a_rogue() -> None:
    seeds = range(1, 100)
    assert any(world_of(seed, short=True, version=2).hold_readers for seed in seeds)
    assert not any(world_of(seed, short=True, version=1).hold_readers for seed in seeds)
    assert not any(world_of(seed, short=True, rogue=()).hold_readers for seed in seeds)
