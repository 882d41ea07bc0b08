"""The scenarios whose crashes are tried. Together they do everything that log storage does to a
disk.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from logservice.entry import EntryKind
from tests.crash.script import OPTIONS, Do, Script
from tests.logdb.helpers import update


def create(script: Script) -> None:
    """An empty directory becomes a store; it is restarted before anything was written."""
    script.do(Do.RESTART)
    script.do(Do.KILL)
    script.commit(update(1, 1, bootstrap=True))
    script.do(Do.RESTART)


def bootstrap(script: Script) -> None:
    """Shards are started, one by one and together."""
    for shard in range(1, 9):
        script.commit(update(shard, 1, snapshot=1, reset=True, bootstrap=True, hard=(1, 0, 1)))
    script.commit(*(update(shard, 2, bootstrap=True) for shard in range(11, 31)))
    script.do(Do.KILL)
    for shard in range(1, 9):
        script.commit(script.append((shard, 1), 1, new_term=True, vote=1))


def rotation(script: Script) -> None:
    """Appends over many segments, of several shards in each group."""
    for number in range(60):
        script.commit(
            script.append((1, 1), 3, size=150, commit=number),
            script.append((2, 5), 1 + number % 4),
            *([script.append((3, 1), 1, size=900)] if number % 5 == 0 else []),
        )
    script.do(Do.RESTART)


def overwrite(script: Script) -> None:
    """The suffix of a follower's log is replaced again and again, across segments and restarts."""
    for number in range(30):
        script.commit(
            script.append((1, 1), 4, size=200, back=number % 4, new_term=number % 3 == 0, vote=2)
        )
        if number % 6 == 5:
            script.commit(script.append((1, 1), 1, commit=script.plain.replica((1, 1)).last - 3))
        if number % 10 == 9:
            script.do(Do.KILL)


def votes(script: Script) -> None:
    """Terms and votes without entries: elections that nobody wins."""
    for term in range(1, 80):
        script.commit(
            update(1, 1, hard=(term, term % 3 + 1, 0)),
            *([update(2, 1, hard=(term, 0, 0))] if term % 2 else []),
        )
        if term % 2:
            script.commit(update(2, 1, hard=(term, 2, 0)))


def config_change(script: Script) -> None:
    """Entries of every kind; a snapshot carries another membership."""
    kinds = (EntryKind.CONFIG, EntryKind.BLOCK, EntryKind.NOOP, EntryKind.COMMAND)
    script.commit(update(1, 1, snapshot=1, reset=True, bootstrap=True, hard=(1, 0, 1)))
    for number in range(40):
        last = script.plain.replica((1, 1)).last
        script.commit(script.append((1, 1), 4, kinds=kinds, commit=last))
        if number % 8 == 7:
            script.commit(update(1, 1, snapshot=last - 2, state=b"m%d" % number))


def snapshot_write(script: Script) -> None:
    """Snapshots are exported beside the log, over the quota, and dropped."""
    for number in range(1, 25):
        script.commit(script.append((1, 1), 2, size=90, commit=2 * number))
        script.export((1, 1), 2 * number)
        if number % 6 == 0:
            script.export((1, 1), 2 * number - 4, drop=True)
        if number % 9 == 0:
            script.do(Do.KILL)


def snapshot_install(script: Script) -> None:
    """Snapshots are installed that are newer, older and as old as what is there. The installation
    is interrupted, and interrupted again.
    """
    script.commit(update(1, 1, snapshot=1, reset=True, bootstrap=True, hard=(1, 0, 1)))
    for number in range(1, 9):
        last = script.plain.replica((1, 1)).last
        script.commit(script.append((1, 1), 12, size=120, commit=last + 10))
        term, index = script.plain.replica((1, 1)).term, last + 30
        for at in (last + 8, last + 2, last + 8):
            script.commit(update(1, 1, snapshot=at, snapshot_term=term))
        term += 1
        received = update(
            1,
            1,
            snapshot=index,
            snapshot_term=term,
            reset=True,
            hard=(term, 0, index),
            state=b"x" * 700 * number,
        )
        script.tear(0.3, received)
        script.tear(0.9, received)
        script.commit(received)


def collection(script: Script) -> None:
    """Logs are truncated and collected; idle shards, cuts and tombstones have to be copied."""
    script.commit(update(3, 3, script.append((3, 3), 2).entries, bootstrap=True, hard=(2, 3, 1)))
    script.commit(script.append((4, 4), 1))
    script.commit(update(4, 4, remove=True))
    for number in range(36):
        last = script.plain.replica((1, 1)).last
        script.commit(
            script.append(
                (1, 1),
                3,
                size=400,
                back=number % 2,
                new_term=number % 7 == 3,
                commit=last - 2 if last > 4 else None,
            )
        )
        if number % 6 == 5:
            script.commit(
                update(
                    1, 1, snapshot=script.plain.replica((1, 1)).commit, snapshot_term=_term(script)
                )
            )
            script.do(Do.COLLECT)
            script.do(Do.COLLECT)
        if number % 12 == 11:
            script.do(Do.KILL)
            script.commit(script.append((3, 3), 1))
    script.do(Do.COLLECT)


def recycling(script: Script) -> None:
    """Segments are made of retired ones; a group is begun while the one before is at the disk."""
    script.pipelined = True
    for number in range(60):
        if number % 10 == 9:
            found = script.plain.replica((1, 1))
            script.commit(update(1, 1, snapshot=found.commit, snapshot_term=_term(script)))
            script.do(Do.COLLECT)
        last = script.plain.replica((1, 1)).last
        script.commit(
            script.append((1, 1), 2, size=350, commit=last or None),
            *([script.append((2, 1), 1)] if number % 3 else []),
        )
        if number == 35:
            script.do(Do.KILL)
    script.do(Do.RESTART)


def _term(script: Script) -> int:
    found = script.plain.replica((1, 1))
    return int(found.entries[found.commit].term) if found.commit in found.entries else found.term


def removal(script: Script) -> None:
    """Replicas come and go; their ids stay burned, through collections too."""
    for number in range(1, 25):
        script.commit(
            update(
                number,
                1,
                script.append((number, 1), 2, size=200).entries,
                bootstrap=True,
                hard=(1, 1, 0),
            ),
            script.append((100, 1), 2, size=300),
        )
        script.commit(update(number, 1, remove=True))
        if number % 8 == 0:
            script.do(Do.COLLECT)
        if number % 10 == 0:
            script.do(Do.KILL)


def hakeeper_checkpoint(script: Script) -> None:
    """Shard 0 compacts itself behind a large state, again and again."""
    script.commit(update(0, 1, snapshot=1, reset=True, bootstrap=True, hard=(1, 1, 1)))
    for number in range(20):
        last = script.plain.replica((0, 1)).last
        script.commit(script.append((0, 1), 3, commit=last + 3, kinds=(EntryKind.COMMAND,)))
        script.export((0, 1), last + 2)
        script.commit(update(0, 1, snapshot=last + 2, state=b"%d" % number * 1500))
        script.export((0, 1), last + 1, drop=True)
        script.do(Do.COLLECT)


def restarts(script: Script) -> None:
    """The store is ended cleanly and killed in turn: LevelDB makes tables and compacts them."""
    for number in range(16):
        script.commit(script.append((1, 1), 2, size=100), script.append((2 + number, 1), 1))
        script.do(Do.KILL if number % 3 else Do.RESTART)
        if number % 4 == 3:
            script.do(Do.CHECKPOINT)


def torn(script: Script) -> None:
    """Recovery itself is cut short: torn groups and failed syncs, one after the other."""
    script.commit(script.append((1, 1), 3, size=100))
    for number in range(12):
        new = script.append((1, 1), 3, size=200, new_term=number % 2 == 0, vote=1)
        script.tear(number / 12, new, script.append((2, 1), 1))
        if number % 3 == 2:
            script.tear(0.99, new)
        script.sync_fails(new)
        if number % 4 == 3:
            script.commit(script.append((2, 1), 2))
            script.tear(0.5, script.append((2, 1), 40, size=120))


def lost_index(script: Script) -> None:
    """The derived index is deleted and written anew from the segments."""
    for number in range(8):
        script.commit(script.append((1, 1), 4, size=300, back=number % 3), script.append((2, 1), 2))
        script.commit(script.append((3, 1), 2, size=500))
        script.do(Do.LOSE_INDEX)


def format_upgrade(script: Script) -> None:
    """A store begins on the files of the version before, and makes the derived index anew.

    (The formats of segments and exports have had only one version.)
    """
    script.commit(update(1, 1, snapshot=1, reset=True, bootstrap=True, hard=(1, 0, 1)))
    for number in range(8):
        last = script.plain.replica((1, 1)).last
        script.commit(
            script.append((1, 1), 4, size=300, back=number % 2, commit=last),
            script.append((2, 1), 2, new_term=number % 3 == 0, vote=2),
        )
        script.export((1, 1), last)
        if number == 3:
            script.commit(update(1, 1, snapshot=last), update(3, 1, bootstrap=True))
            script.commit(update(3, 1, remove=True))
            script.do(Do.COLLECT)
        if number % 2:
            script.do(Do.UPGRADE)
            script.commit(script.append((1, 1), 1))


def commit_indexes(script: Script) -> None:
    """Commit indexes wait for the next group; durable marks are written; the store ends idle."""
    script.commit(script.append((1, 1), 30, size=20), script.append((2, 1), 30, size=20))
    for number in range(1, 25):
        found = script.plain.replica((1, 1))
        script.commit(update(1, 1, hard=(found.term, found.vote, number)), sync=False)
        match number % 4:
            case 0:
                script.do(Do.MARK)
            case 1:
                script.commit(script.append((2, 1), 1))
            case 2:
                script.commit(update(3, 1, hard=(number, 1, 0)))
            case _:
                script.do(Do.RESTART if number % 8 == 3 else Do.CHECKPOINT)


def last_groups(script: Script) -> None:
    """Segments between others are collected, marks are written into their file, and the derived
    index is lost: all at cluster version 2.
    """
    script.cluster_version = 2
    script.commit(script.append((2, 1), 3, size=900), update(3, 1, hard=(4, 2, 0)))
    for number in range(24):
        found = script.plain.replica((1, 1))
        script.commit(script.append((1, 1), 2, size=700, commit=found.last or None))
        if number % 4 == 1:
            script.do(Do.MARK)
        if number % 6 == 5:
            found = script.plain.replica((1, 1))
            script.commit(update(1, 1, snapshot=found.commit, snapshot_term=_term(script)))
            script.do(Do.COLLECT)
        if number % 8 == 3:
            script.do(Do.LOSE_INDEX)
        if number % 8 == 6:
            script.tear(0.5, script.append((1, 1), 3, size=200))
            script.do(Do.MARK)
    script.do(Do.MARK)
    script.do(Do.KILL)
    script.do(Do.MARK)


def raised(script: Script) -> None:
    """A directory of cluster version 1 is raised while its store runs: it has both forms."""
    for number in range(20):
        found = script.plain.replica((1, 1))
        script.commit(
            script.append((1, 1), 2, size=600, commit=found.last or None), script.append((2, 1), 1)
        )
        if number % 3 == 1:
            script.do(Do.MARK)
        if number == 7:
            script.do(Do.RAISE)
            script.do(Do.MARK)
        if number % 5 == 4:
            found = script.plain.replica((1, 1))
            script.commit(update(1, 1, snapshot=found.commit, snapshot_term=_term(script)))
            script.do(Do.COLLECT)
            script.do((Do.KILL, Do.RESTART, Do.LOSE_INDEX)[number % 3])


def wide(script: Script) -> None:
    """Groups have many replicas, or are larger than a segment."""
    for number in range(8):
        script.commit(*(script.append((shard, 1), 2, size=40) for shard in range(1, 25)))
        script.commit(script.append((1, 1), 6, size=1500))
        if number % 4 == 3:
            script.do(Do.KILL)


def everything(script: Script) -> None:
    """A little of all that a store does."""
    script.commit(update(1, 1, snapshot=1, reset=True, bootstrap=True, hard=(1, 0, 1)))
    for number in range(4):
        script.commit(
            script.append((1, 1), 3, size=400, commit=3 * number + 1), script.append((2, 1), 1)
        )
    script.commit(script.append((1, 1), 2, back=2, new_term=True, vote=3))
    script.export((1, 1), 5)
    script.commit(update(1, 1, snapshot=8), update(3, 1, bootstrap=True))
    script.do(Do.COLLECT)
    script.commit(update(3, 1, remove=True))
    script.do(Do.RESTART)
    script.commit(script.append((1, 1), 3, size=900))
    script.do(Do.MARK)
    script.do(Do.LOSE_INDEX)
    script.commit(script.append((2, 1), 1))
    script.export((1, 1), 6, drop=True)
    script.do(Do.RESTART)


def anything(seed: int, length: int) -> Callable[[Script], None]:
    """A scenario of random steps; the same seed gives the same steps."""

    def scenario(script: Script) -> None:
        rng = random.Random(seed)
        script.options = replace(
            script.options,
            segment_bytes=rng.choice([4096, 5000, 12_000]),
            rewrite_live_ratio=rng.choice([0.0, 0.25, 0.9]),
            rewrite_bytes_max=rng.choice([500, 100_000]),
            column_cache_bytes=rng.choice([0, 1 << 20]),
        )
        for _ in range(length):
            _random_step(script, rng)

    return scenario


def _random_step(script: Script, rng: random.Random) -> None:
    key = (rng.randrange(1, 4), 1)
    if key in script.plain.removed:
        return
    found = script.plain.replica(key)
    new = script.append(
        key,
        rng.randrange(1, 5),
        size=rng.choice([0, 10, 300, 900]),
        back=rng.choice([0, 0, 0, 4]),
        new_term=rng.random() < 0.3,
        vote=rng.randrange(4),
        commit=rng.randrange(found.commit, found.last + 1) if found.last > found.commit else None,
    )
    match rng.randrange(20):
        case 0 | 1:
            script.do(Do.COLLECT)
        case 2:
            script.do(Do.RESTART)
        case 3:
            script.do(Do.KILL)
        case 4:
            script.tear(rng.random(), new)
        case 5:
            script.sync_fails(new)
        case 6:
            script.do(rng.choice([Do.MARK, Do.CHECKPOINT, Do.LOSE_INDEX]))
        case 7 | 8 if found.floor < found.commit:
            index = rng.randrange(found.floor + 1, found.commit + 1)
            script.commit(
                update(*key, snapshot=index, snapshot_term=int(found.entries[index].term))
            )
        case 9:
            index, term = found.last + rng.randrange(1, 5), found.term + 1
            state = bytes(rng.choice([5, 3000]))
            script.commit(
                update(
                    *key,
                    snapshot=index,
                    snapshot_term=term,
                    reset=True,
                    state=state,
                    hard=(term, 2, index),
                )
            )
        case 10 if key[0] == 3:
            script.commit(update(*key, remove=True))
        case 11:
            script.export(key, found.last + 1)
        case _:
            script.commit(new)


SCENARIOS: dict[str, Callable[[Script], None]] = {
    found.__name__: found
    for found in (
        create,
        bootstrap,
        rotation,
        overwrite,
        votes,
        config_change,
        snapshot_write,
        snapshot_install,
        collection,
        recycling,
        removal,
        hakeeper_checkpoint,
        restarts,
        torn,
        lost_index,
        format_upgrade,
        commit_indexes,
        last_groups,
        raised,
        wide,
        everything,
    )
}
RANDOM_STEPS = 40


def script_of(name: str) -> Script:
    """The scenario of that name, or ``random-SEED``."""
    script = Script(OPTIONS)
    if name.startswith("random-"):
        anything(int(name.partition("-")[2]), RANDOM_STEPS)(script)
    else:
        SCENARIOS[name](script)
    return script
