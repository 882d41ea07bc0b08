"""The address book survives restarts and damage, and never goes back."""

from __future__ import annotations

import errno
from collections.abc import Sequence

import pytest

from logservice.hakeeper.commands.replies import DirectoryEntry
from logservice.hakeeper.repair.bootstrap import initial_membership
from logservice.ids import ClusterId, Incarnation, Index, ReplicaId, StoreId
from logservice.logdb.io.memory_vfs import MemoryVfs
from logservice.logdb.io.vfs import read_file, write_file
from logservice.membership import Member, Membership
from logservice.nodehost.agent.address_book import AddressBook
from logservice.nodehost.agent.remembered_file import Copy
from logservice.nodehost.transport.seam import PeerIdentity

PATH = "/data/address-book"
SEEDS = {StoreId("s1"): "s1:1", StoreId("s2"): "s2:1"}


def directory(*names: str, port: int = 9) -> list[DirectoryEntry]:
    return [DirectoryEntry(StoreId(name), f"{name}:{port}", f"{name}:50") for name in names]


def membership(*names: str, epoch: int = 1) -> bytes:
    first = initial_membership(
        [Member(ReplicaId(n), StoreId(name), Incarnation(7)) for n, name in enumerate(names, 1)]
    )
    return Membership(
        voters=first.voters, members=first.members, change_epoch=Index(epoch)
    ).encode()


def vfs() -> MemoryVfs:
    made = MemoryVfs()
    made.make_directory("/data")
    made.fsync_directory("/")
    return made


def test_an_empty_book_knows_the_seeds_only() -> None:
    book = AddressBook([Copy(vfs(), PATH)], SEEDS)
    assert not book.knows_hakeeper
    assert book.peer_addresses() == SEEDS
    assert book.hakeeper_stores() == ["s1", "s2"]


def test_what_was_learned_survives_a_power_cut() -> None:
    disk = vfs()
    book = AddressBook([Copy(disk, PATH)], SEEDS)
    changed = book.update(directory("s1", "s7", "s8"), membership("s7", "s8"))
    assert changed == ["s1", "s7", "s8"]
    disk.crash()
    again = AddressBook([Copy(disk, PATH)], SEEDS)
    assert again.knows_hakeeper
    assert again.hakeeper_stores() == ["s7", "s8", "s1", "s2"]
    assert again.peer_addresses() == {"s1": "s1:9", "s2": "s2:1", "s7": "s7:9", "s8": "s8:9"}
    assert again.client_address(StoreId("s7")) == "s7:50"
    assert again.client_address(StoreId("zz")) == ""


def test_a_configured_address_stays_beside_the_learned_one() -> None:
    book = AddressBook([Copy(vfs(), PATH)], SEEDS)
    assert book.candidates(StoreId("s1")) == ("s1:1",)
    book.update([*directory("s1", "s8"), *directory("s2", port=1)], b"")
    assert book.candidates(StoreId("s1")) == ("s1:9", "s1:1")
    assert book.candidates(StoreId("s2")) == ("s2:1",)
    assert book.candidates(StoreId("s8")) == ("s8:9",)
    assert book.candidates(StoreId("s9")) == ()


def test_a_configured_store_is_of_the_cluster_only_until_hakeeper_has_said_who_is() -> None:
    """Of the beginning both are gone: s2 was replaced and forgotten, s1 still runs shard 0."""
    book = AddressBook([Copy(vfs(), PATH)], SEEDS)
    first, second, stranger = (
        PeerIdentity(ClusterId("c"), StoreId(name), (Incarnation(n),), 1)
        for n, name in enumerate(("s1", "s2", "s3"), 1)
    )
    assert book.enrolled(first)
    assert book.enrolled(second)
    assert not book.enrolled(stranger)
    book.update(directory("s8"), membership("s1", "s8"))
    assert book.enrolled(first), "it has not reported yet"
    assert not book.enrolled(second)
    book.update(directory("s2", "s8"), membership("s1", "s8"))
    assert book.enrolled(second), "it has joined again"


def test_an_older_membership_of_shard_0_is_ignored() -> None:
    book = AddressBook([Copy(vfs(), PATH)], SEEDS)
    book.update(directory("s1"), membership("s5", epoch=9))
    book.update(directory("s1"), membership("s1", epoch=3))
    book.update(directory("s1"), b"")
    book.update(directory("s1"), b"garbage")
    assert book.hakeeper_stores() == ["s5", "s1", "s2"]


def test_nothing_is_written_when_nothing_changed() -> None:
    class CountingVfs(MemoryVfs):
        creations = 0

        def create(self, path: str) -> int:
            self.creations += 1
            return super().create(path)

    disk = CountingVfs()
    disk.make_directory("/data")
    book = AddressBook([Copy(disk, PATH)], SEEDS)
    assert book.update(directory("s2", "s1"), membership("s1")) == ["s1", "s2"]
    assert book.update(directory("s1", "s2"), membership("s1")) == []
    assert disk.creations == 1


def test_every_damaged_byte_gives_an_empty_book() -> None:
    disk = vfs()
    AddressBook([Copy(disk, PATH)], SEEDS).update(directory("s1"), membership("s1"))
    whole = read_file(disk, PATH)
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 0x41
        write_file(disk, PATH, bytes(damaged))
        assert not AddressBook([Copy(disk, PATH)], SEEDS).knows_hakeeper
    for length in range(len(whole)):
        write_file(disk, PATH, whole[:length])
        assert AddressBook([Copy(disk, PATH)], SEEDS).peer_addresses() == SEEDS


def test_a_full_disk_costs_persistence_only() -> None:
    class FullVfs(MemoryVfs):
        def pwritev(self, handle: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
            raise OSError(errno.ENOSPC, "full")

    disk = FullVfs()
    disk.make_directory("/data")
    book = AddressBook([Copy(disk, PATH)], SEEDS)
    assert book.update(directory("s3"), membership("s3")) == ["s3"]
    assert book.peer_addresses()[StoreId("s3")] == "s3:9"
    assert not AddressBook([Copy(disk, PATH)], SEEDS).knows_hakeeper


def test_one_of_several_copies_is_enough_and_the_newest_membership_counts() -> None:
    lost, old, new = vfs(), vfs(), vfs()
    AddressBook([Copy(old, PATH)], SEEDS).update(directory("s1"), membership("s1"))
    AddressBook([Copy(new, PATH)], SEEDS).update(directory("s7"), membership("s7", epoch=9))
    for disks in ([lost, old, new], [new, old, lost], [old, lost, new]):
        book = AddressBook([Copy(disk, PATH) for disk in disks], SEEDS)
        assert book.hakeeper_stores() == ["s7", "s1", "s2"]
    book.update(directory("s8"), membership("s8", epoch=10))
    for disk in (lost, old, new):
        assert AddressBook([Copy(disk, PATH)], SEEDS).hakeeper_stores() == ["s8", "s1", "s2"]


def test_a_copy_that_cannot_be_read_matters_only_if_no_other_knows() -> None:
    class BrokenVfs(MemoryVfs):
        def exists(self, path: str) -> bool:
            raise OSError(errno.EIO, "broken")

    good = vfs()
    broken = BrokenVfs()
    with pytest.raises(OSError, match="broken"):
        AddressBook([Copy(good, PATH), Copy(broken, PATH)], SEEDS)
    AddressBook([Copy(good, PATH)], SEEDS).update(directory("s1"), membership("s1"))
    assert AddressBook([Copy(broken, PATH), Copy(good, PATH)], SEEDS).knows_hakeeper
