"""Only the right data directories start shard 0, and only once. Names INV-BOOT-1 and INV-BOOT-2."""

from __future__ import annotations

import asyncio

import pytest
from logservice_wire.errors import InvalidArgument, NotReady

from logservice.hakeeper.commands.replies import DirectoryEntry
from logservice.hakeeper.repair.bootstrap import initial_membership
from logservice.ids import HAKEEPER_SHARD, Incarnation, ReplicaId, StoreId
from logservice.logdb.format.update import Bootstrap
from logservice.logdb.io.memory_vfs import MemoryVfs
from logservice.membership import Member, Membership
from logservice.nodehost.agent.address_book import AddressBook
from logservice.nodehost.agent.bootstrap import (
    PROBE,
    BootstrapOutcome,
    Bootstrapper,
    InitialMember,
)
from logservice.nodehost.agent.remembered_file import Copy
from logservice.nodehost.transport.seam import PeerIdentity
from tests.nodehost.fake_host import FakeHost, FakeNetwork, raw

NAMES = ("s1", "s2", "s3")
MEMBERS = tuple(InitialMember(StoreId(name), f"{name}:1") for name in NAMES)


class Stores:
    def __init__(self, *names: str) -> None:
        self.network = FakeNetwork()
        self.hosts: dict[str, FakeHost] = {}
        self.boots: dict[str, Bootstrapper] = {}
        self.books: dict[str, AddressBook] = {}
        for name in names or NAMES:
            self.add(name)

    def add(self, name: str) -> None:
        host = FakeHost(self.network, name)
        vfs = MemoryVfs()
        vfs.make_directory("/d")
        self.hosts[name] = host
        seeds = {member.store_id: member.peer_address for member in MEMBERS}
        self.books[name] = AddressBook([Copy(vfs, "/d/book")], seeds)
        self.boots[name] = Bootstrapper(host, self.books[name], MEMBERS)
        self.boots[name].serve()

    def wipe(self, name: str) -> None:
        """The same store on an empty data directory."""
        old = self.hosts[name].identity
        self.add(name)
        self.hosts[name].identity = PeerIdentity(
            old.cluster_id,
            old.store_id,
            (Incarnation(old.incarnations[0] + 1000),),
            old.boot_id + 1,
        )

    async def run(self, *names: str, timeout_s: float = 60.0) -> list[BootstrapOutcome]:
        return list(
            await asyncio.gather(*(self.boots[name].run(timeout_s) for name in names or NAMES))
        )

    def membership(self, name: str) -> Membership | None:
        bootstrap = self.hosts[name].bootstraps.get(HAKEEPER_SHARD)
        return bootstrap.membership if bootstrap is not None else None


async def test_all_initial_members_start_with_one_membership() -> None:
    stores = Stores()
    assert await stores.run() == [BootstrapOutcome.STARTED] * 3
    expected = initial_membership(
        [
            Member(ReplicaId(n), StoreId(name), stores.hosts[name].identity.incarnations[0])
            for n, name in enumerate(NAMES, 1)
        ]
    )
    for number, name in enumerate(NAMES, 1):
        assert stores.hosts[name].calls == [
            ("start", HAKEEPER_SHARD, ReplicaId(number), expected, False)
        ]
    assert stores.hosts["s1"].transport.addresses == {"s2": "s2:1", "s3": "s3:1"}


async def test_a_store_that_moved_is_not_sought_where_the_configuration_says() -> None:
    stores = Stores()
    await stores.run()
    stores.books["s1"].update(
        [
            DirectoryEntry(StoreId("s2"), "s2:moved", ""),
            DirectoryEntry(StoreId("s3"), "s3:1", ""),
        ],
        b"",
    )
    stores.hosts["s1"].transport.addresses.clear()
    await stores.run("s1")
    assert stores.hosts["s1"].transport.addresses == {"s2": "s2:moved", "s3": "s3:1"}


async def test_a_store_that_is_no_member_starts_nothing() -> None:
    stores = Stores(*NAMES, "s9")
    assert await stores.run("s9") == [BootstrapOutcome.NOT_A_MEMBER]
    assert stores.hosts["s9"].calls == []


@pytest.mark.parametrize("missing", NAMES)
async def test_nobody_starts_before_every_member_answered(missing: str) -> None:
    stores = Stores()
    stores.hosts[missing].up = False
    others = [name for name in NAMES if name != missing]
    results = await asyncio.gather(
        *(stores.boots[name].run(0.3) for name in others), return_exceptions=True
    )
    for name, result in zip(others, results, strict=True):
        assert isinstance(result, NotReady)
        assert missing in str(result)
        assert stores.hosts[name].calls == []


async def test_a_late_member_is_waited_for() -> None:
    stores = Stores()
    stores.hosts["s3"].up = False

    async def late() -> list[BootstrapOutcome]:
        await asyncio.sleep(0.3)
        stores.hosts["s3"].up = True
        return await stores.run("s3")

    early, last = await asyncio.gather(stores.run("s1", "s2"), late())
    assert early + last == [BootstrapOutcome.STARTED] * 3


async def test_a_member_that_was_slow_starts_by_the_record_of_another() -> None:
    stores = Stores()
    await stores.run("s1")
    stores.hosts["s1"].up = False
    stores.hosts["s1"].up = True
    assert await stores.run("s3") == [BootstrapOutcome.STARTED]
    assert stores.membership("s3") == stores.membership("s1")
    stores.hosts["s1"].up = False
    assert await stores.run("s2") == [BootstrapOutcome.STARTED]
    assert stores.membership("s2") == stores.membership("s3")


@pytest.mark.parametrize("victim", NAMES)
async def test_an_emptied_disk_refuses(victim: str) -> None:
    """INV-BOOT-2: the record names the store with another incarnation."""
    stores = Stores()
    await stores.run()
    stores.wipe(victim)
    assert await stores.run(victim) == [BootstrapOutcome.REFUSED]
    assert stores.hosts[victim].calls == []


async def test_a_member_emptied_before_it_started_refuses_and_the_others_go_on() -> None:
    stores = Stores()
    await stores.run("s1")
    stores.wipe("s2")
    assert await stores.run("s2", "s3") == [BootstrapOutcome.REFUSED, BootstrapOutcome.STARTED]
    assert stores.membership("s3") == stores.membership("s1")


async def test_a_restarted_member_has_nothing_to_do() -> None:
    stores = Stores()
    await stores.run()
    for name in NAMES:
        stores.hosts[name].calls.clear()
        stores.boots[name] = Bootstrapper(stores.hosts[name], stores.books[name], MEMBERS)
    stores.hosts["s2"].up = False
    assert await stores.run("s1", "s3") == [BootstrapOutcome.STORED] * 2
    assert stores.hosts["s1"].calls == []


async def test_a_store_that_remembers_hakeeper_never_bootstraps() -> None:
    """The store's own replica of shard 0 was removed, so it does not ask the others."""
    stores = Stores()
    known = initial_membership([Member(ReplicaId(8), StoreId("s8"), Incarnation(1))])
    stores.books["s1"].update([], known.encode())
    assert await stores.run("s1") == [BootstrapOutcome.STORED]
    assert stores.hosts["s1"].calls == []


async def test_a_store_that_lost_something_of_nobody_knows_whom_never_bootstraps() -> None:
    """The store may have lost its replica of shard 0, which has voted (short seed 64169)."""
    stores = Stores()
    await stores.run("s1")
    del stores.hosts["s1"].bootstraps[HAKEEPER_SHARD]
    stores.hosts["s1"].calls.clear()
    stores.boots["s1"] = Bootstrapper(
        stores.hosts["s1"], stores.books["s1"], MEMBERS, unattributed_loss=True
    )
    stores.boots["s1"].serve()
    assert await stores.run("s1") == [BootstrapOutcome.STORED]
    assert stores.hosts["s1"].calls == []
    with pytest.raises(NotReady):
        await stores.run("s2", timeout_s=0.3)
    assert stores.hosts["s2"].calls == [], "nor does it tell others that it never was"


async def test_a_joined_replica_has_no_initial_membership_to_tell() -> None:
    stores = Stores()
    stores.hosts["s2"].bootstraps[HAKEEPER_SHARD] = Bootstrap(Membership(), join=True)
    with pytest.raises(NotReady):
        await stores.run("s1", timeout_s=0.3)
    assert stores.hosts["s1"].calls == []


async def test_an_address_that_leads_to_another_store_does_not_count() -> None:
    stores = Stores()
    stores.network.hosts["s3:1"] = stores.hosts["s2"]
    with pytest.raises(NotReady, match="s3"):
        await stores.run("s1", timeout_s=0.3)


@pytest.mark.parametrize("answer", [b"\xc1", b"\x94\xa2\xff\xfe\xc3\xc4\x00"])
async def test_a_garbled_probe_counts_as_no_answer(answer: bytes) -> None:
    """One answer does not decode, and the other has a name that is no text."""
    stores = Stores()

    async def garbled(peer: PeerIdentity, body: bytes) -> bytes:
        return answer

    stores.hosts["s3"].requests.register(raw(PROBE), garbled)
    with pytest.raises(NotReady, match="s3"):
        await stores.run("s1", timeout_s=0.3)


async def test_contradicting_records_are_refused() -> None:
    stores = Stores()
    for name, other in (("s1", 1), ("s3", 2)):
        members = [
            Member(ReplicaId(2), StoreId("s2"), stores.hosts["s2"].identity.incarnations[0]),
            Member(ReplicaId(3), StoreId("s3"), Incarnation(other)),
        ]
        stores.hosts[name].bootstraps[HAKEEPER_SHARD] = Bootstrap(
            initial_membership(members), join=False
        )
    assert await stores.run("s2") == [BootstrapOutcome.REFUSED]


async def test_who_is_starting_says_so_before_the_record_is_durable() -> None:
    stores = Stores()
    seen: list[bool] = []
    original = stores.hosts["s1"].replicas.start

    async def slow(shard, replica, membership, **how):  # type: ignore[no-untyped-def]
        stores.wipe("s2")
        seen.append(await stores.run("s2") == [BootstrapOutcome.REFUSED])
        await original(shard, replica, membership, **how)

    stores.hosts["s1"].replicas.start = slow  # type: ignore[method-assign]
    await stores.run("s1")
    assert seen == [True]


async def test_a_removed_replica_id_does_not_start_again() -> None:
    stores = Stores()
    await stores.run("s1")
    stores.hosts["s2"].failure = InvalidArgument("removed here", field="replica")
    assert await stores.run("s2") == [BootstrapOutcome.REFUSED]


async def test_damaged_data_of_shard_0_is_no_first_start() -> None:
    """Simulator seed 306: the bootstrap record rotted, and the old id was begun anew."""
    stores = Stores()
    stores.hosts["s1"].stored.add((HAKEEPER_SHARD, ReplicaId(1)))
    assert await stores.run("s1") == [BootstrapOutcome.STORED]
    assert stores.hosts["s1"].calls == []
