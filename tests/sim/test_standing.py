"""Worlds in which replicas get stuck: their apply stands still."""

from __future__ import annotations

from logservice.nodehost.replica.replica import Replica
from logservice.raft.ready import Role
from logservice.sim.campaign import world_of
from logservice.sim.config import SimConfig
from logservice.sim.faults.standing import Standing, stands
from logservice.sim.world import World


def world(seed: int, *, calm: bool) -> World:
    config: SimConfig = world_of(seed, short=True, version=2)
    assert (config.stands, config.calm) == (True, calm)
    return World(config)


def test_in_a_world_without_other_faults_stuck_leaders_give_way() -> None:
    here = world(600061, calm=True)
    report = here.run()
    assert report.violations == []
    assert report.counts["fault apply stands still"] == 4


def test_in_a_world_with_faults_the_log_goes_on_once_they_are_over() -> None:
    report = world(600046, calm=False).run()
    assert report.violations == []
    assert report.counts["fault apply stands still"] > 0


def test_one_voter_of_each_log_applies_and_release_lets_all_go_on() -> None:
    """All but one of the voters of a log may stand, and its leader stands among them."""
    here = world(600061, calm=True)
    standing = Standing(here)
    seen: list[tuple[list[Replica], list[Replica]]] = []

    def look() -> None:
        for _ in range(10):
            standing._stand(here.shards[0])
        found = [store.running(here.shards[0]) for store in here.stores]
        running = [one for one in found if one is not None]
        standing.release()
        seen.append((running, [one for one in running if not stands(one)]))

    here.loop.call_in(here.loop.world, 10.0, look)
    here.run()
    [(running, after)] = seen
    assert len(running) == 3
    assert after == running
    assert here.counts["fault apply stands still"] >= 2
    assert any(one.raft.role is Role.LEADER for one in running)


def test_no_world_of_version_1_has_it() -> None:
    assert not any(world_of(seed, short=True, version=1).stands for seed in range(600000, 600200))
