"""Where replicas live in a store with several data directories."""

from __future__ import annotations

from pathlib import Path

import pytest
from logservice_wire.errors import Halted, InvalidArgument

from logservice.ids import Incarnation, ReplicaId, ShardId
from logservice.logdb.format.update import Bootstrap, Update
from logservice.membership import Membership
from logservice.nodehost.disks.directories import Directories
from logservice.nodehost.disks.directory import Directory
from logservice.nodehost.disks.executor import InlineExecutor
from tests.nodehost.logdb_files import OpenLogDb

ONE = ShardId(1)


class Disks:
    def __init__(self, root: Path, count: int = 3) -> None:
        self.files = [OpenLogDb(root / f"disk-{n}", "store-1") for n in range(count)]
        self.each = [
            Directory(one.incarnation, one.logdb, InlineExecutor(), InlineExecutor())
            for one in self.files
        ]
        self.all = Directories(self.each)

    def put(self, number: int, replica: int, *, remove: bool = False) -> None:
        bootstrap = None if remove else Bootstrap(Membership(), True)
        update = Update(ONE, ReplicaId(replica), bootstrap=bootstrap, remove=remove)
        self.files[number].logdb.commit([update])


def test_a_replica_stays_where_its_data_is(tmp_path: Path) -> None:
    """INV-HOST-3."""
    disks = Disks(tmp_path)
    disks.put(2, 7)
    assert disks.all.holding(ONE, ReplicaId(7)) is disks.each[2]
    assert disks.all.place(ONE, ReplicaId(7)) is disks.each[2]
    with pytest.raises(InvalidArgument) as refused:
        disks.all.place(ONE, ReplicaId(7), disks.each[1].incarnation)
    assert refused.value.metadata["field"] == "incarnation"


def test_a_new_one_goes_where_the_caller_says_or_to_the_emptiest(tmp_path: Path) -> None:
    disks = Disks(tmp_path)
    disks.put(0, 7)
    disks.put(1, 8)
    assert disks.all.place(ONE, ReplicaId(9), disks.each[0].incarnation) is disks.each[0]
    assert disks.all.place(ONE, ReplicaId(9)) is disks.each[2]
    disks.put(2, 9)
    assert disks.all.place(ONE, ReplicaId(10)) is disks.each[0]
    with pytest.raises(InvalidArgument):
        disks.all.place(ONE, ReplicaId(10), Incarnation(5))


def test_looking_for_a_replica_leaves_no_trace_of_it(tmp_path: Path) -> None:
    disks = Disks(tmp_path)
    assert disks.all.holding(ONE, ReplicaId(7)) is None
    assert disks.all.replicas() == []
    disks.files[1].logdb.log(ONE, ReplicaId(7))
    assert disks.all.holding(ONE, ReplicaId(7)) is None


def test_a_tombstone_counts_wherever_it_lies(tmp_path: Path) -> None:
    disks = Disks(tmp_path)
    disks.put(1, 7)
    disks.put(1, 7, remove=True)
    assert disks.all.removed(ONE, ReplicaId(7))
    assert not disks.all.removed(ONE, ReplicaId(8))
    assert disks.all.replicas() == []


def test_a_failed_one_takes_nothing_and_shows_nothing(tmp_path: Path) -> None:
    """INV-HOST-2."""
    disks = Disks(tmp_path, 2)
    disks.put(0, 7)
    disks.put(1, 8)
    disks.each[0].failed = "no such device"
    assert disks.all.replicas() == [(ONE, ReplicaId(8))]
    assert disks.all.place(ONE, ReplicaId(9)) is disks.each[1]
    with pytest.raises(Halted):
        disks.all.place(ONE, ReplicaId(7))
    with pytest.raises(Halted):
        disks.all.place(ONE, ReplicaId(9), disks.each[0].incarnation)
    disks.each[1].failed = "neither"
    with pytest.raises(Halted):
        disks.all.roomiest()


def test_none_or_the_same_twice_is_refused(tmp_path: Path) -> None:
    disks = Disks(tmp_path, 1)
    with pytest.raises(InvalidArgument):
        Directories([])
    with pytest.raises(InvalidArgument):
        Directories([disks.each[0], disks.each[0]])
