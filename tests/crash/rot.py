"""Every file that is not a segment rots: ``python -m tests.crash.rot``.

A random bit flips in every byte; files are cut short, emptied, replaced by garbage, deleted. Each
damage is done alone, and the store is opened after it. The store must show what was acked, or
refuse with a typed error that names the damage:

- a damaged identity file is refused;
- a derived file is rebuilt, and the store reports it;
- a damaged export is passed over for an older one, and counted;
- a damaged book is an empty one;
- damage of any other file has no effect.
"""

from __future__ import annotations

import logging
import os
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import click
from logservice_wire.errors import InvalidArgument, WrongCluster

from logservice.clock import SystemClock
from logservice.hakeeper.commands.proposals import AccessGrant
from logservice.hakeeper.commands.replies import DirectoryEntry
from logservice.ids import ReplicaId, ShardId, StoreId
from logservice.logdb.log_db import LogDb
from logservice.nodehost.agent.access_book import AccessBook
from logservice.nodehost.agent.address_book import AddressBook
from logservice.nodehost.agent.remembered_file import Copy
from tests.crash.campaign import put, tree_of, work_directory
from tests.crash.disk import Tree
from tests.crash.faults import in_process
from tests.crash.perform import EXPORTS, Files, Performer, exports_in, world_in
from tests.crash.plain import look
from tests.crash.script import OPTIONS, Do, Script
from tests.logdb.helpers import all_entries, log_of, members, update

BOOK = "address-book"
ACCESS = "access-book"
GRANTS = [AccessGrant("spiffe://c/client/db", "*", ("read",))]
WRONGS_MAX = 20
STORES = [
    DirectoryEntry(StoreId("s1"), "s1:9", "s1:50"),
    DirectoryEntry(StoreId("s2"), "", "s2:50"),
]


@dataclass(frozen=True, slots=True)
class Rot:
    """What happens to a file. `at`: the byte and the bit, or how many bytes are left."""

    path: str
    what: str
    at: int = 0
    bit: int = 0

    def apply(self, tree: Tree) -> Tree:
        """The tree with the damage."""
        data = tree[self.path]
        assert data is not None
        damaged: bytes | None = None
        match self.what:
            case "flip":
                changed = bytearray(data)
                changed[self.at] ^= 1 << self.bit
                damaged = bytes(changed)
            case "cut":
                damaged = data[: self.at]
            case "zeros":
                damaged = data[: self.at] + bytes(len(data) - self.at)
            case "garbage":
                damaged = random.Random(self.at).randbytes(len(data) or 40)
            case "longer":
                damaged = data + b"\xa5" * 100
        rest = {path: found for path, found in tree.items() if path != self.path}
        return rest if damaged is None else {**rest, self.path: damaged}

    def __str__(self) -> str:
        return f"{self.path}: {self.what} {self.at}.{self.bit}"


def script() -> Script:
    """A store with every kind of file: tables, logs, exports, a ballast."""
    made = Script(replace(OPTIONS, ballast_bytes=4096))
    made.commit(update(1, 1, snapshot=1, reset=True, bootstrap=True, hard=(1, 0, 1)))
    for number in range(6):
        made.commit(
            made.append((1, 1), 3, size=300, commit=3 * number + 1), made.append((2, 1), 2, size=40)
        )
        if number % 2:
            made.do(Do.RESTART)
        made.export((1, 1), 3 * number + 1)
    made.commit(update(1, 1, snapshot=7), update(3, 1, bootstrap=True))
    made.commit(update(3, 1, remove=True))
    made.do(Do.COLLECT)
    made.do(Do.CHECKPOINT)
    made.commit(made.append((2, 1), 1))
    return made


def build(root: str) -> tuple[Script, Tree]:
    """Perform the script and die; return the files that are left. It needs a process of its own."""
    made = script()
    performer = Performer(root, made)
    for step in made.steps:
        performer.perform(step)
    book = AddressBook([Copy(Files(), f"{root}/{BOOK}")], {})
    book.update(STORES, members().encode())
    AccessBook([Copy(Files(), f"{root}/{ACCESS}")], SystemClock()).update(5, GRANTS)
    return made, tree_of(Path(root))


def damages(tree: Tree, seed: int, stride: int) -> Iterator[Rot]:
    """Every damage that is done to the files."""
    rng = random.Random(seed)
    for path, data in sorted(tree.items()):
        if (
            data is None
            or path.startswith("segments/")
            or path.endswith(("LOCK", "LOG", "LOG.old"))
        ):
            continue
        first = rng.randrange(stride)
        for offset in range(first, len(data), stride):
            yield Rot(path, "flip", offset, rng.randrange(8))
        yield Rot(path, "deleted")
        yield Rot(path, "longer")
        yield Rot(path, "garbage", seed)
        for at in {0, 1, len(data) // 3, len(data) // 2, len(data) - 1}:
            yield Rot(path, "cut", at)
            yield Rot(path, "zeros", at)


def judge(root: str, made: Script, tree: Tree, rot: Rot) -> str:
    """What came of a damage. It raises AssertionError, or what the store raised, if that is
    wrong.
    """
    hurt = rot.apply(tree)
    put(hurt, root)
    world = world_in(root, made)
    wanted = made.expected[-1].picture
    try:
        db = world.open()
    except WrongCluster:
        assert rot.path == "IDENTITY", rot
        return "refused"
    except InvalidArgument:
        assert (rot.path, rot.what) == ("IDENTITY", "deleted"), rot
        return "refused"
    assert rot.path != "IDENTITY" or hurt == tree, f"{rot}: another identity is believed"
    rebuilt = db.recovery_report.rebuilt
    assert look(db) == wanted, rot
    questions(db)
    db.commit([update(9, 9, script().append((9, 9), 1).entries)])
    world.close(db)
    db = world.open()
    assert not db.recovery_report.rebuilt, f"{rot}: rebuilt again"
    questions(db)
    world.close(db)
    passed_over = _exports(root, made, rot)
    emptied = _books(root, rot, changed=hurt != tree)
    if rebuilt:
        assert rot.path.startswith("index"), rot
        return "rebuilt"
    return "passed over" if passed_over else "emptied" if emptied else "no effect"


def questions(db: LogDb) -> None:
    """Ask every question that the index answers."""
    for shard, replica in db.replicas():
        log = log_of(db, int(shard), int(replica))
        assert not log.faulty, log.faulty
        for found in all_entries(log):
            assert log.term(found.index) == found.term
            assert log.next_lsn(found.index) == found.next_lsn
            if found.record_count:
                assert log.index_of_lsn(found.lsn) == found.index


def _exports(root: str, made: Script, rot: Rot) -> bool:
    """Whether an older export came in the place of a damaged one, which must have been counted."""
    exports = exports_in(root)
    newest = exports.newest(ShardId(1), ReplicaId(1))
    wanted = made.expected[-1].exports[1, 1]
    assert newest is not None, rot
    assert newest.state == b"state %d" % newest.index * 30, rot
    if newest.index == wanted:
        return False
    assert rot.path.startswith(EXPORTS), rot
    assert exports.damaged_count or rot.what == "deleted", rot
    return True


def _books(root: str, rot: Rot, *, changed: bool) -> bool:
    """A damaged book is empty: no store is sought at a wrong address, and no right is granted."""
    whole = {one.store: one.peer_address for one in STORES if one.peer_address}
    addresses = AddressBook([Copy(Files(), f"{root}/{BOOK}")], {}).peer_addresses()
    access = AccessBook([Copy(Files(), f"{root}/{ACCESS}")], SystemClock()).list
    gone = {BOOK: not addresses, ACCESS: not access.version}
    assert addresses in (whole, {}), rot
    for name, empty in gone.items():
        assert empty == (changed and rot.path == name), rot
    reads = access.roles(GRANTS[0].identity, ShardId(1), None)
    assert reads == (frozenset() if gone[ACCESS] else {"read"}), rot
    return any(gone.values())


def campaign(work: Path, seed: int, stride: int) -> Iterator[tuple[Rot, str, str]]:
    """Do every damage; yield it with what came of it and what is wrong, if anything."""
    root = str(work / "data")
    code, said = in_process(lambda _: build(root) and 0)
    assert code == 0, said
    made, tree = script(), tree_of(work / "data")
    for rot in damages(tree, seed, stride):

        def judged(pipe: int, rot: Rot = rot) -> int:
            os.write(pipe, judge(root, made, tree, rot).encode())
            return 0

        code, said = in_process(judged)
        yield rot, said if code == 0 else "failed", "" if code == 0 else f"{rot}: {code}{said}"


@click.command()
@click.option("--stride", default=1, show_default=True, help="Every how manieth byte is hit.")
@click.option("--seed", default=1, show_default=True, help="Which bit of each.")
def main(stride: int, seed: int) -> None:
    """Damage every file that is not a segment, everywhere, and open the store."""
    started, work = time.monotonic(), work_directory()
    logging.disable()  # the books log each time that they are damaged
    found: Counter[tuple[str, str]] = Counter()
    wrongs = 0
    for rot, outcome, wrong in campaign(work, seed, stride):
        found[_kind(rot.path), outcome] += 1
        if wrong:
            wrongs += 1
            print(wrong, flush=True)
            if wrongs > WRONGS_MAX:
                break
    shutil.rmtree(work)
    for (kind, outcome), count in sorted(found.items()):
        print(f"{kind:<10} {outcome:<12} {count:>6,}")
    print(f"{found.total()} reopenings, {wrongs} wrong, {time.monotonic() - started:.0f} s")
    sys.exit(wrongs > 0)


def _kind(path: str) -> str:
    """What kind of file it is."""
    name = path.rpartition("/")[2]
    for kind in ("MANIFEST", "CURRENT", ".ldb", ".log", ".snap"):
        if kind in name:
            return kind.lstrip(".")
    return name


if __name__ == "__main__":
    main()
