"""Damage at a moment: it comes at the moment of its name, and never looks like a torn write."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from logservice_wire.errors import Halted

from logservice.ids import ClusterId, Index, ReplicaId, ShardId, StoreId
from logservice.logdb.format.fault import Fault
from logservice.logdb.format.update import Update
from logservice.logdb.io.data_directory import DataDirectory
from logservice.logdb.log_db import LogDb
from logservice.logdb.options import LogDbOptions
from logservice.sim.config import draw
from logservice.sim.disk import SimDisk
from logservice.sim.faults.damage import MOMENTS, Damage, moment_of
from logservice.sim.world import World as SimWorld
from tests.logdb.helpers import entries, update

KEY = (ShardId(1), ReplicaId(1))
OPTIONS = LogDbOptions(segment_bytes=4096, ballast_bytes=0, entry_cache_bytes=0)


class Store:
    """The parts of a store that damage needs: a disk, log storage, and a loop without time."""

    def __init__(self, seed: int) -> None:
        self.number = self.store_id = seed
        self.disk = SimDisk(random.Random(seed), lambda: None)
        self.up, self.process = True, object()
        self.world = SimpleNamespace(
            cluster_version=1,
            config=SimpleNamespace(seed=seed, disk_delay_s=0.1),
            healing=False,
            counts=Counter(),
            note=lambda *_: None,
            stores=[],
            loop=SimpleNamespace(world=None, call_in=self._call),
        )
        self.logdb = self.open()
        self.parts = SimpleNamespace(directories=[SimpleNamespace(logdb=self.logdb)])

    def open(self) -> LogDb:
        self.disk.up()
        identity = DataDirectory.open(
            "/data", vfs=self.disk, cluster_id=ClusterId("c"), store_id=StoreId("s")
        )
        return LogDb.open(
            "/data", identity=identity, vfs=self.disk, kv=self.disk.kv, options=OPTIONS
        )

    def _call(self, _: object, delay_s: float, work: Callable[..., None], *what: object) -> None:
        assert 0 <= delay_s <= 0.1
        work(*what)


def commit(store: Store, damage: Damage, one: Update) -> None:
    group = store.logdb.begin([one])
    damage.begun(store.logdb, [one])
    store.logdb.write(group)
    store.logdb.finish(group)
    at = group.encoded.position
    damage.durable(store.logdb, (at.segment, at.offset))


@pytest.mark.parametrize(
    ("one", "moment"),
    [
        (update(new=entries(1, 2)), "append"),
        (update(hard=(1, 1, 0)), "vote"),
        (update(snapshot=3), "truncation"),
        (update(snapshot=3, reset=True), "leader's snapshot"),
        (update(remove=True), "removal of a replica"),
        (Update(*KEY, repair=Fault("seen", Index(1), Index(2))), "repair"),
    ],
)
def test_moments_have_names(one: Update, moment: str) -> None:
    assert moment_of(one) == moment
    assert moment in MOMENTS


@pytest.mark.parametrize("sectors", [False, True])
def test_what_is_hit_is_damage_and_never_torn(*, sectors: bool) -> None:
    found: Counter[str] = Counter()
    for seed in range(40):
        store: Any = Store(seed)
        damage = Damage(store)
        for index in range(1, 12):
            commit(store, damage, update(new=entries(index, index, size=700)))
        damage.arm(sectors=lambda: sectors)
        assert damage.armed <= set(MOMENTS)
        damage.armed = frozenset(["append"])
        damage.comes(store.logdb, "repair")
        assert damage.armed, "that was another one"
        commit(store, damage, update(new=entries(12, 12, size=700)))
        assert not damage.armed
        hit = store.world.counts["fault damage at a moment: append"]
        at_once = bool(store.logdb.log(*KEY).faulty)
        found["at once" if at_once else "later"] += hit
        store.logdb.record_faults()
        store.disk.kill()
        again = store.open().log(*KEY)
        assert again.last_index() == 12, "nothing is dropped"
        if hit and not again.faulty:
            with pytest.raises(Halted):
                again.entries(Index(1), Index(13), 1 << 20)
        assert bool(again.faulty) == bool(hit)
    assert found["at once"] > found["later"] > 0


@pytest.mark.parametrize("faulty", [False, True])
def test_what_is_hit_in_the_newest_segment_is_found_at_once(*, faulty: bool) -> None:
    """Short seed 2500949: the scrub does not read the newest segment, nor did anyone else, so the
    damage was still there at the end.
    """
    found: Counter[int] = Counter()
    for seed in range(40):
        store: Any = Store(seed)
        damage = Damage(store)
        for index in range(1, 5):
            commit(store, damage, update(new=entries(index, index, size=20)))
        log = store.logdb.log(*KEY)
        if faulty:
            log.blame("seen", Index(3))
        damage.arm(sectors=lambda: True)
        damage.strike_anyhow()
        hits = sum(store.world.counts.values())
        found[hits] += 1
        assert bool(log.faulty) == bool(hits or faulty)
        assert log.fault is None or not faulty or log.fault.damaged_from == 3
    assert found[0] if faulty else found[1] > 30


def test_nothing_is_hit_before_something_is_durable_or_once_all_is_healed() -> None:
    store: Any = Store(1)
    damage = Damage(store)
    damage.armed = frozenset(["append", "vote"])
    commit(store, damage, update(hard=(1, 1, 0)))
    damage.strike_anyhow()
    damage.armed = frozenset(["append"])
    store.world.healing = True
    commit(store, damage, update(new=entries(1, 3)))
    assert damage.armed
    damage.strike_anyhow()
    assert not store.world.counts
    damage.began()
    assert not damage.armed


@pytest.mark.parametrize(
    ("given_up", "joint", "version"), [(True, False, 1), (False, True, 1), (True, True, 2)]
)
def test_nothing_is_hit_while_another_voter_may_be_swapped_in_place(
    *, given_up: bool, joint: bool, version: int
) -> None:
    """Short seed 2300261: of three voters one was in a failed directory, with its successor on the
    same store, and one was damaged.
    """
    store, damage = beside(given_up=given_up, joint=joint, version=version)
    for _ in range(20):
        damage.armed = frozenset(["append"])
        damage.strike_anyhow()
    assert not store.world.counts
    store.world.stores.clear()
    damage.armed = frozenset(["append"])
    damage.strike_anyhow()
    assert store.world.counts


def test_from_version_2_on_a_voter_in_a_failed_directory_is_waited_for() -> None:
    """Short seed 2300261: it is no reason any more to leave the other voters alone."""
    store, damage = beside(given_up=True, joint=False, version=2)
    damage.armed = frozenset(["append"])
    damage.strike_anyhow()
    assert store.world.counts


def beside(*, given_up: bool, joint: bool, version: int) -> tuple[Any, Damage]:
    """A store with something durable, beside one that gave a directory up, or whose shard is
    joint.
    """
    store: Any = Store(1)
    store.world.cluster_version = version
    damage = Damage(store)
    for index in range(1, 5):
        commit(store, damage, update(new=entries(index, index, size=700)))
    raft = SimpleNamespace(membership=SimpleNamespace(joint=joint))
    other = SimpleNamespace(
        gave_up_a_directory=given_up, running=lambda _: SimpleNamespace(raft=raft)
    )
    store.world.stores.append(other)
    return store, damage


def test_a_world_whose_store_is_hit_while_it_works_ends_well() -> None:
    config = draw(2_200_005, short=True)
    config.calm, config.victim, config.rot, config.damage_interval_s = False, 1, True, 0.5
    config.fault_s = config.least_s = 8.0
    report = SimWorld(config).run()
    assert not report.violations
    moments = [name for name in report.counts if name.startswith("fault damage at a moment: ")]
    assert sum(report.counts[name] for name in moments) > 1
    assert report.counts["repair repaired"]
