"""The same operations on eleven configurations give the same answers to every question.

The stores use real files and the real LevelDB; restarts, kills, torn groups and collections are
among the operations. A configuration changes where records lie, what is in memory, what is copied,
how many updates share a group, and in which of several data directories a replica is. No reader may
see any of it.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from logservice.ids import Index, Lsn
from logservice.logdb.format.update import Update, merge
from logservice.logdb.log_db import LogDb
from logservice.logdb.options import LogDbOptions
from tests.crash.campaign import work_directory
from tests.crash.perform import Performer
from tests.crash.plain import Key
from tests.crash.scenarios import script_of
from tests.crash.script import OPTIONS, Do, Script, Step
from tests.logdb.helpers import all_entries, log_of

SEEDS = 10
MERGED_MAX = 5
DIRECTORIES = 2
CONFIGURATIONS: dict[str, tuple[LogDbOptions, bool]] = {
    "small segments": (OPTIONS, False),
    "one segment": (replace(OPTIONS, segment_bytes=1 << 20), False),
    "odd segments": (replace(OPTIONS, segment_bytes=5003), False),
    "entries in memory": (replace(OPTIONS, entry_cache_bytes=1 << 20), False),
    "few entries in memory": (replace(OPTIONS, entry_cache_bytes=900), False),
    "no columns in memory": (replace(OPTIONS, column_cache_bytes=0), False),
    "everything is copied": (replace(OPTIONS, rewrite_live_ratio=1.0), False),
    "nothing is copied": (
        replace(OPTIONS, rewrite_live_ratio=0.0, rewrite_old_live_ratio=0.0),
        False,
    ),
    "little is copied at once": (
        replace(OPTIONS, rewrite_live_ratio=1.0, rewrite_bytes_max=500),
        False,
    ),
    "updates share groups": (replace(OPTIONS, ballast_bytes=4096), True),
}


def answers(db: LogDb) -> dict[object, object]:
    """The store's answers to every question."""
    said: dict[object, object] = {"removed": db.removed()}
    for shard, replica in db.replicas():
        log = log_of(db, int(shard), int(replica))
        first, last = log.first_index(), log.last_index()
        known = [
            (int(log.term(Index(i))), int(log.next_lsn(Index(i))))
            for i in range(first - 1, last + 1)
        ]
        top = log.next_lsn(last)
        lsns: list[object] = []
        for lsn in range(max(log.next_lsn(Index(first - 1)) - 1, 0), top + 2):
            try:
                lsns.append(int(log.index_of_lsn(Lsn(lsn))))
            except KeyError:
                lsns.append(None)
        parts = [
            log.entries(Index(low), Index(min(low + 3, last + 1)), 500)
            for low in range(first, last + 1)
        ]
        said[shard, replica] = (
            log.hard_state,
            log.bootstrap,
            log.installed,
            log.faulty,
            first,
            last,
            known,
            lsns,
            parts,
            all_entries(log),
        )
    return said


def grouped(steps: list[Step]) -> Iterator[Step]:
    """The same steps, with several commits in one group where that is allowed."""
    waiting: dict[Key, Update] = {}
    count = 0
    for step in steps:
        merged = dict(waiting) if step.do is Do.COMMIT and count < MERGED_MAX else None
        for update in step.updates if merged is not None else ():
            key = (int(update.shard), int(update.replica))
            earlier = merged.get(key) if merged is not None else None
            both = update if earlier is None else merge(earlier, update)
            if both is None or merged is None:
                merged = None
                break
            merged[key] = both
        if merged is not None:
            waiting, count = merged, count + 1
            continue
        if waiting:
            yield Step(Do.COMMIT, tuple(waiting.values()))
        waiting, count = {}, 0
        if step.do is Do.COMMIT:
            waiting = {(int(u.shard), int(u.replica)): u for u in step.updates}
            count = 1
        else:
            yield step
    if waiting:
        yield Step(Do.COMMIT, tuple(waiting.values()))


def part_of(script: Script, directory: int) -> Script:
    """The part of a script that happens in one of `DIRECTORIES` data directories.

    Each directory has the replicas of some shards and its own writer. A store dies with all of
    them.
    """
    part = Script(script.options)
    for step in script.steps:
        own = [one for one in step.updates if int(one.shard) % DIRECTORIES == directory]
        match step.do:
            case Do.COMMIT:
                if own:
                    part.commit(*own)
            case Do.TEAR | Do.SYNC_FAILS if not own:
                part.do(Do.KILL)
            case Do.TEAR:
                part.tear(step.share, *own)
            case Do.SYNC_FAILS:
                part.sync_fails(*own)
            case Do.EXPORT | Do.DROP_EXPORTS:
                if step.key[0] % DIRECTORIES == directory:
                    part.export(step.key, step.index, drop=step.do is Do.DROP_EXPORTS)
            case _:
                assert not step.updates, "a commit that waits may travel with another group"
                part.do(step.do)
    return part


def in_directories(root: str, script: Script) -> dict[object, object]:
    """The answers of all directories of a store together."""
    said: dict[object, object] = {}
    removed: set[object] = set()
    for directory in range(DIRECTORIES):
        path = Path(root) / str(directory)
        path.mkdir()
        found = perform(str(path), part_of(script, directory), share_groups=False)
        here = found.pop("removed")
        assert isinstance(here, set | frozenset)
        assert not said.keys() & found.keys()
        removed |= here
        said.update(found)
    return {"removed": removed, **said}


def perform(root: str, script: Script, *, share_groups: bool) -> dict[object, object]:
    performer = Performer(root, script)
    for step in grouped(script.steps) if share_groups else script.steps:
        performer.perform(step)
    performer.judge(len(script.steps))
    before = answers(performer.store)
    performer.perform(Step(Do.RESTART))
    assert answers(performer.store) == before
    performer.close()
    return before


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_every_configuration_says_the_same(seed: int) -> None:
    work = work_directory()
    said = {}
    for name, (options, share_groups) in CONFIGURATIONS.items():
        script = script_of(f"random-{random.Random(seed).randrange(10**6)}")
        script.options = options
        root = str(work / name.replace(" ", "-"))
        Path(root).mkdir()
        said[name] = perform(root, script, share_groups=share_groups)
    root = work / "directories"
    root.mkdir()
    said["several directories"] = in_directories(str(root), script)
    first, *others = said
    for name in others:
        assert said[name] == said[first], name
    shutil.rmtree(work)


def test_directories_share_the_replicas() -> None:
    """If one directory had all replicas, two of the configurations would be the same."""
    script = script_of("random-7")
    parts = [part_of(script, directory) for directory in range(DIRECTORIES)]
    assert all(part.plain.replicas for part in parts)
    together = {key: found for part in parts for key, found in part.plain.replicas.items()}
    assert together == script.plain.replicas


def test_several_updates_share_a_group() -> None:
    script = script_of("rotation")
    shared = list(grouped(script.steps))
    assert len(shared) < len(script.steps) / 3
