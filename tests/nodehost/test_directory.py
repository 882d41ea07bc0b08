"""A store's directory follows HAKeeper's, and never goes back by an old answer."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from logservice import bounds
from logservice.clock import ManualClock
from logservice.hakeeper.answers.directory import DirectoryPage, DirectoryRow, directory_page
from logservice.hakeeper.answers.queries import GetDirectory
from logservice.hakeeper.commands import proposals, replies
from logservice.hakeeper.rsm import HAKeeperRsm
from logservice.hakeeper.state import State
from logservice.ids import Index, ShardId, StoreId
from logservice.logdb.io.memory_vfs import MemoryVfs
from logservice.logdb.io.vfs import read_file, write_file
from logservice.nodehost.agent.directory import Directory
from logservice.nodehost.agent.remembered_file import Copy
from logservice.outcome import Applied
from logservice.versions import KNOWN
from tests.hakeeper.beaten import next_beat
from tests.hakeeper.model import Model

LIMIT = 3


class Follower:
    """A store's directory, which asks a replica of shard 0 for small pages."""

    def __init__(self, vfs: MemoryVfs | None = None) -> None:
        self.clock = ManualClock()
        self.vfs = vfs if vfs is not None else MemoryVfs()
        self.directory = Directory([Copy(self.vfs, "/directory")], self.clock)

    def beat(self, state: State, *asked: State, pages: int = 1000) -> None:
        """A heartbeat is answered by `state`, and pages by the replicas `asked` in turn."""
        newest = max(state.directory_index, state.directory_lost)
        known = self.directory.index
        if not self.directory.hear(known, state.index, newest, state.access_version):
            return
        for number in range(pages):
            query = self.directory.wanted()
            at = asked[number % len(asked)] if asked else state
            page = directory_page(at, query.since, query.after, LIMIT)
            if not self.directory.take(query, page):
                return

    def rows(self) -> dict[ShardId, tuple[str, bytes]]:
        found = {}
        for shard in range(1000):
            row = self.directory.row(ShardId(shard))
            if row is not None:
                found[ShardId(shard)] = (row.name, row.membership)
                assert self.directory.resolve(row.name) == row
        assert len(found) == len(self.directory)
        return found


def truth(state: State) -> dict[ShardId, tuple[str, bytes]]:
    return {
        one.shard: (one.name, one.membership)
        for one in state.shards.values()
        if not one.deleting_tick
    }


def born(stores: int = 4, shards: int = 1) -> Model:
    model = Model(stores, versions=KNOWN)
    model.start(shards=shards)
    return model


def change(dice: random.Random, model: Model) -> None:
    """Something that a person or a failure does to the logs."""
    logs = sorted(one for one in model.state.shards if one)
    kind = dice.choice(["create", "create", "rename", "delete", "move", "access", "time"])
    name = f"name-{dice.randrange(20)}"
    if kind == "create":
        model.propose(proposals.CreateShard(ShardId(0), name, 1))
    elif kind == "rename" and logs:
        model.propose(proposals.ChangeShard(dice.choice(logs), name))
    elif kind == "delete" and logs:
        shard = model.state.shards[dice.choice(logs)]
        model.propose(proposals.DeleteShard(shard.shard, shard.name, Index(0), True))
    elif kind == "move":
        store = dice.choice(sorted(model.stores))
        model.stores[store].up = not model.stores[store].up
    elif kind == "access":
        client = "spiffe://d/cluster/c/client/x"
        model.propose(proposals.ChangeAccess(client, "*", (dice.choice(["read", "append"]),), ()))
    model.run(dice.choice([1, 5, 30]))


def test_followers_have_what_hakeeper_has_after_any_history() -> None:
    """INV-HK-MARKS, INV-DIRECTORY-1: one follows all the time, one is away for long, one starts
    again from its file, and one asks replicas that lag behind.
    """
    lost = 0
    for seed in range(5):
        dice = random.Random(seed)
        model = born()
        steady, lazy, lagging, vfs = Follower(), Follower(), Follower(), MemoryVfs()
        old: list[State] = [HAKeeperRsm().state]
        for _ in range(25):
            change(dice, model)
            state = model.state
            if dice.random() < 0.3:
                model.new_hakeeper_leader()
            if dice.random() < 0.3:
                behind = HAKeeperRsm()
                behind.recover_from_snapshot(model.rsm.save_snapshot())
                old.append(behind.state)
            state = model.state
            steady.beat(state)
            assert steady.rows() == truth(state)
            lagging.beat(state, dice.choice(old), state, pages=dice.randrange(1, 9))
            if dice.random() < 0.15:
                lazy.beat(state)
                assert lazy.rows() == truth(state)
            restarted = Follower(vfs)
            restarted.beat(state)
            assert restarted.rows() == truth(state)
        lagging.beat(model.state)
        assert lagging.rows() == truth(model.state)
        lost += model.state.directory_lost > 0
    assert lost > 1


def test_only_what_changed_is_told_and_a_page_is_bounded() -> None:
    model = born(shards=10)
    follower = Follower()
    follower.beat(model.state)
    assert len(follower.directory) == 11
    model.propose(proposals.ChangeShard(ShardId(4), "other"))
    query = follower.directory.wanted()
    page = directory_page(model.state, query.since, query.after, 256)
    assert [(one.shard, one.name, page.more) for one in page.rows] == [(4, "other", False)]
    page = directory_page(model.state, 0, ShardId(0), 4)
    assert (len(page.rows), page.more) == (4, True)


def test_an_older_answer_changes_nothing() -> None:
    """INV-DIRECTORY-1: a page of a replica that lags, and one that was asked for before."""
    model = born(shards=3)
    before = HAKeeperRsm()
    before.recover_from_snapshot(model.rsm.save_snapshot())
    follower = Follower()
    model.propose(proposals.ChangeShard(ShardId(1), "renamed"))
    follower.beat(model.state)
    expected = follower.rows()
    index = follower.directory.index
    asked = follower.directory.wanted()
    stale = directory_page(before.state, 0, ShardId(0), 256)
    assert not follower.directory.take(asked, stale)
    assert not follower.directory.take(GetDirectory(0, ShardId(0)), stale)
    again = Follower(follower.vfs)
    again.beat(model.state, before.state)
    assert (again.rows(), again.directory.index) == (expected, index)


def test_hakeeper_that_lost_entries_is_asked_for_everything_anew() -> None:
    """A restored shard 0: what was known by the lost entries is no name for a grant any more."""
    model = born()
    earlier = model.rsm.save_snapshot()
    model.propose(proposals.ChangeShard(ShardId(1), "lost-name"))
    follower = Follower()
    follower.beat(model.state)
    directory = follower.directory
    assert directory.name_of(ShardId(1), model.state.access_version) == "lost-name"
    model.rsm.recover_from_snapshot(earlier)
    state = model.state
    newest = max(state.directory_index, state.directory_lost)
    assert directory.hear(directory.index, state.index, newest, state.access_version)
    assert directory.name_of(ShardId(1), 0) is None
    follower.beat(state)
    assert follower.rows() == truth(state)
    assert directory.name_of(ShardId(1), state.access_version) == "log-1"


def test_a_name_is_told_only_with_the_list_that_it_is_as_new_as() -> None:
    """INV-DIRECTORY-2, also after a restart."""
    model = born()
    follower = Follower()
    follower.beat(model.state)
    version = model.state.access_version
    model.propose(proposals.ChangeShard(ShardId(1), "renamed"))
    assert model.state.access_version == version + 1
    for directory in (follower.directory, Follower(follower.vfs).directory):
        assert directory.name_of(ShardId(1), version) == "log-1"
        assert directory.name_of(ShardId(1), version + 1) is None
        assert directory.name_of(ShardId(9), version) is None
    follower.beat(model.state)
    for directory in (follower.directory, Follower(follower.vfs).directory):
        assert directory.name_of(ShardId(1), version + 1) == "renamed"


def test_the_file_is_written_at_once_for_the_access_list_and_else_now_and_then() -> None:
    """DIRECTORY_WRITE_INTERVAL_S, DIRECTORY_REWRITE_S, at their edges."""
    model = born()
    follower = Follower()

    def written(after_s: float) -> bool:
        before = read_file(follower.vfs, "/directory")
        follower.clock.advance(after_s)
        follower.beat(model.state)
        return read_file(follower.vfs, "/directory") != before

    follower.beat(model.state)
    model.propose(proposals.ChangeShard(ShardId(1), "renamed"))
    assert written(0.1)
    model.propose(proposals.CreateShard(ShardId(0), "new", 1))
    assert not written(bounds.DIRECTORY_WRITE_INTERVAL_S - 0.1)
    assert written(0.2)
    model.run(1)
    assert not written(bounds.DIRECTORY_REWRITE_S - 1)
    assert written(2)


@pytest.mark.parametrize("position", [0, 4, 5, 20, -1])
def test_a_damaged_file_is_no_directory(position: int) -> None:
    model = born()
    follower = Follower()
    follower.beat(model.state)
    data = bytearray(read_file(follower.vfs, "/directory"))
    data[position] ^= 1
    write_file(follower.vfs, "/directory", bytes(data))
    directory = Follower(follower.vfs).directory
    assert (len(directory), directory.index) == (0, 0)
    assert directory.name_of(ShardId(1), 0) is None


def test_the_age_is_counted_by_the_wall_clock_after_a_restart() -> None:
    """A wall clock that was set back makes it 0, not less."""
    model = born()
    follower = Follower()
    follower.beat(model.state)
    follower.clock.advance(7)
    assert follower.directory.age_s() == 7
    for now, age in ((500.0, 500.0), (0.0, 0.0)):
        clock = ManualClock(now)
        assert Directory([Copy(follower.vfs, "/directory")], clock).age_s() == age


def test_the_list_of_stores_is_told_only_when_it_changed() -> None:
    model = born()
    seen = model.state.stores_index

    def answer(stores_index: int) -> replies.HeartbeatReply:
        store = model.state.stores[StoreId("s1")]
        outcome = model.propose(next_beat(store, stores_index=stores_index))
        assert isinstance(outcome, Applied)
        return replies.decode(outcome.data)

    assert len(answer(0).directory) == len(answer(seen - 1).directory) == 4
    same = answer(seen)
    assert (same.directory, same.stores_index) == ((), seen)
    model.add_store("s5")
    model.run(20)
    assert len(answer(seen).directory) == 5
    assert answer(seen).stores_index > seen


def test_a_page_that_says_more_and_has_no_rows_ends_the_asking() -> None:
    directory = Follower().directory
    page = DirectoryPage(5, 0, 0, True, ())
    assert not directory.take(directory.wanted(), page)
    row = DirectoryRow(ShardId(1), 3, "one", "open", 1, b"")
    assert directory.take(directory.wanted(), replace(page, rows=(row,)))
