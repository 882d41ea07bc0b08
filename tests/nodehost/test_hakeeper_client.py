"""Finding shard 0 here or through peers, past dead stores, without doing anything twice."""

from __future__ import annotations

import asyncio
import time

import pytest
from logservice_wire.errors import (
    Busy,
    DeadlineExceeded,
    InvalidArgument,
    LogServiceError,
    NotLeader,
    NotReady,
    PermissionDenied,
    ShardExists,
    ShardNotFound,
    UnknownOutcome,
)
from msgspec.structs import replace

from logservice import bounds
from logservice.hakeeper.answers import queries
from logservice.hakeeper.commands import proposals, replies
from logservice.hakeeper.commands.phase import Phase
from logservice.hakeeper.commands.replies import DirectoryEntry
from logservice.hakeeper.commands.store_commands import TransferLeader
from logservice.hakeeper.repair.bootstrap import initial_membership
from logservice.hakeeper.state import ShardState
from logservice.ids import (
    HAKEEPER_SHARD,
    NO_REPLICA,
    Incarnation,
    Index,
    ReplicaId,
    ShardId,
    StoreId,
    Term,
)
from logservice.logdb.io.memory_vfs import MemoryVfs
from logservice.membership import Member
from logservice.nodehost.agent.address_book import AddressBook
from logservice.nodehost.agent.hakeeper_client import HEARTBEAT, LOOKUP, PROPOSE, HAKeeperClient
from logservice.nodehost.agent.remembered_file import Copy
from logservice.versions import KNOWN
from tests.nodehost.fake_host import FakeHost, FakeNetwork, Nobody, Shard0, raw


class Cluster:
    """s1 and s2 run shard 0; s3 does not."""

    def __init__(self) -> None:
        self.shard0 = Shard0()
        self.network = FakeNetwork()
        self.hosts = {
            name: FakeHost(self.network, name, self.shard0 if name != "s3" else None)
            for name in ("s1", "s2", "s3")
        }
        seeds = {StoreId(name): f"{name}:1" for name in ("s1", "s2")}
        self.books = {name: AddressBook([Copy(MemoryVfs(), "/book")], seeds) for name in self.hosts}
        self.clients = {
            name: HAKeeperClient(host, self.books[name]) for name, host in self.hosts.items()
        }
        for client in self.clients.values():
            client.serve()
        member = Member(ReplicaId(1), StoreId("s1"), Incarnation(1))
        self.shard0.membership = initial_membership([member])
        self.shard0.propose(
            proposals.encode(
                proposals.InitialCluster("c", self.shard0.membership.encode(), (), 1, 100)
            )
        )
        self.shard0.rsm.state.phase = Phase.RUNNING

    def count(self, kind: type[proposals.Proposal]) -> int:
        return sum(1 for proposal in self.shard0.applied if isinstance(proposal, kind))


async def test_a_local_replica_is_asked_first() -> None:
    cluster = Cluster()
    assert await cluster.clients["s1"].allocate_ids("k", 5, "", 1.0) == 1
    assert cluster.network.requests == []


async def test_a_store_without_shard_0_asks_others_and_remembers_who_answered() -> None:
    cluster = Cluster()
    cluster.hosts["s1"].up = False
    client = cluster.clients["s3"]
    assert await client.allocate_ids("k", 5, "", 1.0) == 1
    assert cluster.network.requests == [("s1", PROPOSE.method), ("s2", PROPOSE.method)]
    assert await client.allocate_ids("k", 5, "", 1.0) == 6
    assert cluster.network.requests[2:] == [("s2", PROPOSE.method)]


async def test_who_stops_answering_is_not_asked_first_again() -> None:
    cluster = Cluster()
    client = cluster.clients["s3"]
    await client.allocate_ids("k", 1, "", 1.0)
    cluster.hosts["s1"].up = False
    await client.allocate_ids("k", 1, "", 1.0)
    cluster.network.requests.clear()
    await client.allocate_ids("k", 1, "", 1.0)
    assert cluster.network.requests == [("s2", PROPOSE.method)]


async def test_the_address_book_is_searched_before_the_seeds() -> None:
    cluster = Cluster()
    moved = FakeHost(cluster.network, "s9", cluster.shard0)
    HAKeeperClient(moved, cluster.books["s3"]).serve()
    known = initial_membership([Member(ReplicaId(1), StoreId("s9"), Incarnation(1))])
    entry = replies.DirectoryEntry(StoreId("s9"), "s9:1", "")
    cluster.books["s3"].update([entry], known.encode())
    await cluster.clients["s3"].allocate_ids("k", 1, "", 1.0)
    assert cluster.network.requests == [("s9", PROPOSE.method)]


async def test_a_local_replica_without_a_leader_is_asked_last() -> None:
    cluster = Cluster()
    cluster.hosts["s1"].leader = NO_REPLICA
    await cluster.clients["s1"].allocate_ids("k", 1, "", 1.0)
    assert cluster.network.requests == [("s2", PROPOSE.method)]
    cluster.hosts["s2"].up = False
    assert await cluster.clients["s1"].allocate_ids("k", 1, "", 1.0) == 2


async def test_a_store_that_refuses_who_asks_is_passed_by() -> None:
    """That store may not know yet who has joined; the others know."""
    cluster = Cluster()
    s1 = cluster.hosts["s1"]
    s1.requests.directory = Nobody()
    assert await cluster.clients["s3"].allocate_ids("k", 1, "", 30.0) == 1
    assert cluster.network.requests == [("s1", PROPOSE.method), ("s2", PROPOSE.method)]
    assert s1.requests.refused[PROPOSE.method, "enrolled"] == 1


async def test_a_denial_of_the_state_machine_is_an_answer() -> None:
    cluster = Cluster()
    cluster.hosts["s1"].propose_failures = [PermissionDenied("who speaks for whom")]
    with pytest.raises(PermissionDenied):
        await cluster.clients["s3"].allocate_ids("k", 1, "", 30.0)


async def test_who_says_where_the_leader_is_is_believed_if_that_runs_shard_0() -> None:
    """INV-PEER-3."""
    cluster = Cluster()
    cluster.hosts["s1"].elsewhere = "s2"
    client = cluster.clients["s3"]
    assert await client.allocate_ids("k", 1, "", 30.0) == 1
    assert cluster.network.requests == [("s1", PROPOSE.method), ("s2", PROPOSE.method)]
    assert await cluster.clients["s1"].allocate_ids("k", 1, "", 30.0) == 2
    cluster.network.requests.clear()
    cluster.hosts["s2"].elsewhere = "s9"
    with pytest.raises(NotReady):
        await client.allocate_ids("k", 1, "", 0.2)
    assert {target for target, _ in cluster.network.requests} == {"s1", "s2"}


async def test_a_store_that_was_away_learns_who_runs_shard_0_from_the_one_member_it_knows() -> None:
    """Found by the simulator (short seed 880016): the member that it knew did not lead, and the
    leader that this member named was not believed.
    """
    cluster = Cluster()
    newer = initial_membership(
        [Member(ReplicaId(n), StoreId(f"s{n}"), Incarnation(n)) for n in (1, 2)]
    )
    state = cluster.shard0.rsm.state
    state.shards[HAKEEPER_SHARD].membership = replace(newer, change_epoch=9).encode()
    book = AddressBook([Copy(MemoryVfs(), "/away")], {StoreId("s1"): "s1:1"})
    book.update(
        [DirectoryEntry(StoreId("s2"), "s2:1", "s2:50")], cluster.shard0.membership.encode()
    )
    away = HAKeeperClient(cluster.hosts["s3"], book)
    cluster.hosts["s1"].elsewhere = "s2"
    assert await away.allocate_ids("k", 1, "", 2.0) == 1
    assert book.hakeeper.change_epoch == 9


async def test_the_membership_is_asked_of_each_store_that_names_a_leader_nobody_knows() -> None:
    """Found by the simulator: the first one that named the leader ran shard 0 no more and could not
    say who does, so the member behind it, which named the same leader, was never asked.
    """
    cluster = Cluster()
    known, newer = (
        initial_membership(
            [Member(ReplicaId(n), StoreId(name), Incarnation(n)) for n, name in enumerate(names, 1)]
        )
        for names in (("s3", "s2"), ("s1", "s2"))
    )
    state = cluster.shard0.rsm.state
    state.shards[HAKEEPER_SHARD].membership = replace(newer, change_epoch=9).encode()

    def gone(target: str, method: str) -> None:
        if target == "s3" and method == PROPOSE.method:
            raise NotLeader("no replica of shard 0 on this store", leader="s1")

    cluster.network.failures = gone
    cluster.hosts["s2"].elsewhere = "s1"
    book = AddressBook([Copy(MemoryVfs(), "/away")], {})
    book.update(
        [DirectoryEntry(StoreId(name), f"{name}:1", f"{name}:50") for name in ("s1", "s2", "s3")],
        known.encode(),
    )
    away = HAKeeperClient(FakeHost(cluster.network, "s4"), book)
    assert await away.allocate_ids("k", 1, "", 2.0) == 1
    assert cluster.network.requests == [
        ("s3", PROPOSE.method),
        ("s3", LOOKUP.method),
        ("s2", PROPOSE.method),
        ("s2", LOOKUP.method),
        ("s1", PROPOSE.method),
    ]


@pytest.mark.parametrize("knows", ["the seed runs shard 0", "the seed runs it no more"])
async def test_a_store_that_joins_is_told_the_way_by_a_seed(knows: str) -> None:
    """`make life` showed it: HAKeeper's leader was on no store that the new one's configuration
    named, and the new one never joined.
    """
    cluster = Cluster()
    s1 = cluster.hosts["s1"]
    if knows == "the seed runs shard 0":
        s1.elsewhere = "s2"
    else:
        s1.propose_failures = [ShardNotFound("no replica of shard 0 on this store", shard=0)] * 9
        await cluster.clients["s1"].allocate_ids("k", 1, "", 1.0)  # s2 has answered it
        s1.propose_failures = [ShardNotFound("no replica of shard 0 on this store", shard=0)] * 9
    s1.cluster_version.learn(2)
    book = AddressBook([Copy(MemoryVfs(), "/new")], {StoreId("s1"): "s1:1"})
    new = HAKeeperClient(cluster.hosts["s3"], book)
    await new.propose(_beat(3, 103), 2.0)
    assert cluster.network.requests[-2:] == [("s1", HEARTBEAT.method), ("s2", HEARTBEAT.method)]
    transport = cluster.hosts["s3"].transport
    assert transport.addresses["s2"] == "s2:1"
    book.update([], cluster.shard0.membership.encode())
    assert book.hakeeper_stores() == ["s1"], "followed only until HAKeeper has answered"
    assert "s2" not in book.peer_addresses()


@pytest.mark.parametrize("version", [1, 2])
async def test_a_store_that_was_away_asks_where_a_leader_is_that_joined_meanwhile(
    version: int,
) -> None:
    """Found by the simulator (short seed 71000606): it learned that the leader runs shard 0, and
    never where that is, so its heartbeat reached nobody who takes it. INV-PEER-3: nothing is asked
    of a store that runs no shard 0, wherever it is said to be.
    """
    cluster = Cluster()
    for host in cluster.hosts.values():
        host.cluster_version.learn(version)
    cluster.shard0.rsm.state.cluster_version = version
    second, third = (replace(_beat(number), labels=KNOWN.labels()) for number in (2, 3))
    await cluster.clients["s2"].propose(second, 2.0)
    cluster.hosts["s1"].elsewhere = "s2"
    directory = [DirectoryEntry(StoreId("s1"), "s1:1", "s1:50")]
    book = AddressBook([Copy(MemoryVfs(), "/away")], {StoreId("s1"): "s1:1"})
    book.update(directory, cluster.shard0.membership.encode())
    away = HAKeeperClient(cluster.hosts["s3"], book)
    with pytest.raises(NotReady):
        await away.propose(third, 0.2)
    assert ("s2", HEARTBEAT.method) not in cluster.network.requests
    newer = initial_membership(
        [Member(ReplicaId(n), StoreId(f"s{n}"), Incarnation(n)) for n in (1, 2)]
    )
    state = cluster.shard0.rsm.state
    state.shards[HAKEEPER_SHARD].membership = replace(newer, change_epoch=9).encode()
    await away.propose(third, 2.0)
    assert cluster.network.requests[-1] == ("s2", HEARTBEAT.method)
    assert cluster.hosts["s3"].transport.addresses["s2"] == "s2:1"
    book.update([DirectoryEntry(StoreId("s2"), "s2:7", "s2:50")], b"")
    assert book.peer_addresses()["s2"] == "s2:7", "what HAKeeper says wins"


async def test_at_version_1_a_seed_does_not_say_the_way() -> None:
    cluster = Cluster()
    cluster.hosts["s1"].elsewhere = "s2"
    book = AddressBook([Copy(MemoryVfs(), "/new")], {StoreId("s1"): "s1:1"})
    with pytest.raises(NotReady):
        await HAKeeperClient(cluster.hosts["s3"], book).propose(_beat(3, 103), 0.2)
    assert {target for target, _ in cluster.network.requests} == {"s1"}


async def test_busy_and_not_ready_are_tried_again_until_the_deadline() -> None:
    cluster = Cluster()
    cluster.hosts["s1"].propose_failures = [Busy(), NotReady(), Busy()]
    cluster.hosts["s2"].up = False
    assert await cluster.clients["s1"].allocate_ids("k", 1, "", 30.0) == 1


async def test_without_a_leader_there_is_a_pause_between_two_rounds() -> None:
    """Stores that proposed as fast as they were refused have kept a shard from electing one."""
    cluster = Cluster()
    for host in cluster.hosts.values():
        host.propose_failures = [NotReady("no leader")] * 10_000
    began = time.monotonic()
    with pytest.raises(NotReady):
        await cluster.clients["s3"].allocate_ids("k", 1, "", 0.5)
    rounds = 1 + (time.monotonic() - began) / bounds.HAKEEPER_RETRY_S
    asked = [target for target, _ in cluster.network.requests]
    assert 2 <= asked.count("s1") <= rounds + 1
    assert 2 <= asked.count("s2") <= rounds + 1


async def test_nobody_there_is_not_ready_when_the_time_is_up() -> None:
    cluster = Cluster()
    cluster.hosts["s1"].up = cluster.hosts["s2"].up = False
    with pytest.raises(NotReady):
        await cluster.clients["s3"].allocate_ids("k", 1, "", 0.25)


async def test_nobody_to_ask_is_no_answer_about_the_shard() -> None:
    """Containers showed it: clients gave up existing shards while all stores restarted."""
    cluster = Cluster()
    # No store that is asked runs a replica of shard 0 yet.
    never = [ShardNotFound("no replica of shard 0 on this store", shard=0)] * 1000
    for host in cluster.hosts.values():
        host.propose_failures = list(never)
    with pytest.raises(NotReady, match="no replica of shard 0"):
        await cluster.clients["s3"].allocate_ids("k", 1, "", 0.3)


async def test_an_answer_of_the_state_machine_is_final() -> None:
    cluster = Cluster()
    await _stores(cluster)
    await cluster.clients["s1"].create_shard(ShardId(0), "a", 1, 1.0)
    with pytest.raises(ShardExists):
        await cluster.clients["s1"].create_shard(ShardId(0), "a", 1, 1.0)
    with pytest.raises(InvalidArgument):
        await cluster.hosts["s3"].transport.request("s1", PROPOSE.method, b"?", 1.0)


async def test_administration_is_applied_where_the_leader_is_and_never_passed_on() -> None:
    cluster = Cluster()
    await _stores(cluster)
    leads = proposals.ReplicaReport(
        HAKEEPER_SHARD,
        ReplicaId(1),
        Incarnation(1),
        Index(1),
        cluster.shard0.membership.encode(),
        leads=True,
        term=1,
        leader=ReplicaId(1),
    )
    beat = replace(_beat(1, 1), sequence=2, replicas=(leads,))
    cluster.shard0.propose(proposals.encode(beat))
    for name in ("s2", "s3"):
        cluster.hosts[name].elsewhere = "s1"
        with pytest.raises(NotLeader) as refused:
            await cluster.clients[name].create_shard(ShardId(0), "b", 1, 1.0)
        assert refused.value.metadata["leader"] == "s1"
        assert refused.value.metadata["address"] in ("s1:50", "s1:client")
    assert cluster.count(proposals.CreateShard) == 0
    assert {method for _, method in cluster.network.requests} <= {LOOKUP.method}


async def test_an_idempotent_proposal_is_repeated_after_a_lost_answer() -> None:
    cluster = Cluster()
    lost = [True]
    cluster.network.lost = lambda target, method: bool(lost) and lost.pop()
    assert await cluster.clients["s3"].allocate_ids("k", 3, "request", 2.0) == 1
    assert cluster.count(proposals.AllocateIds) == 2
    assert await cluster.clients["s3"].allocate_ids("k", 3, "other", 2.0) == 4


async def test_unknown_outcomes_are_reported_as_such_at_the_deadline() -> None:
    cluster = Cluster()
    cluster.network.lost = lambda target, method: target == "s1"
    cluster.hosts["s2"].up = False
    with pytest.raises((UnknownOutcome, DeadlineExceeded)):
        await cluster.clients["s3"].allocate_ids("k", 1, "", 0.25)


async def test_views_are_the_same_near_and_far() -> None:
    cluster = Cluster()
    await _stores(cluster)
    shard = await cluster.clients["s1"].create_shard(ShardId(0), "a", 1, 1.0)
    near = await cluster.clients["s1"].cluster(1.0)
    far = await cluster.clients["s3"].cluster(1.0)
    assert near == far
    assert near.phase == "running"
    view = await cluster.clients["s3"].shard(shard, 1.0)
    assert view is not None
    assert view.name == "a"
    assert view.client_addresses == ("s1:50",)
    assert await cluster.clients["s3"].shard(ShardId(99), 1.0) is None
    assert await cluster.clients["s3"].query(queries.GetPhase(), 1.0) == "running"


async def test_a_stale_look_stays_here_when_it_can() -> None:
    cluster = Cluster()
    for host in cluster.hosts.values():
        host.propose_failures = [NotReady()] * 1000
    assert (await cluster.clients["s1"].cluster(1.0, stale=True)).phase == "running"
    with pytest.raises(LogServiceError):
        await cluster.clients["s3"].cluster(0.2, stale=True)


async def test_a_garbled_question_is_refused() -> None:
    cluster = Cluster()
    for body in (b"", b"\x01\xc1", b"\x09"):
        with pytest.raises(InvalidArgument):
            await cluster.hosts["s3"].transport.request("s1", "hakeeper.lookup", body, 1.0)
        with pytest.raises(InvalidArgument):
            await cluster.hosts["s3"].transport.request("s1", "hakeeper.propose", body, 1.0)


async def test_a_garbled_answer_is_no_answer() -> None:
    cluster = Cluster()

    async def garbled(peer: object, body: bytes) -> bytes:
        return b"\xc1"

    cluster.hosts["s1"].requests.register(raw(PROPOSE), garbled)
    cluster.hosts["s1"].requests.register(raw(LOOKUP), garbled)
    assert await cluster.clients["s3"].allocate_ids("k", 1, "", 1.0) == 1
    assert (await cluster.clients["s3"].cluster(1.0)).phase == "running"


async def test_g5_a_garbled_answer_leaves_the_outcome_unknown() -> None:
    """The error was NotReady once. It says "definitely not applied", and the ids were allocated."""
    cluster = Cluster()
    client = cluster.clients["s3"]

    async def garbled(peer: object, body: bytes) -> bytes:
        cluster.shard0.propose(body)
        return b"\xc1"

    for name in ("s1", "s2"):
        cluster.hosts[name].requests.register(raw(PROPOSE), garbled)
    with pytest.raises(UnknownOutcome):
        await client.allocate_ids("k", 1, "request", 0.3)
    assert cluster.shard0.rsm.state.id_counters == {"k": 2}


async def test_g5_a_refusal_behind_an_unknown_outcome_does_not_say_not_applied() -> None:
    """The error was the refusal once. It says "definitely not applied", and the attempt before it
    had applied the proposal.
    """
    cluster = Cluster()

    async def lost(peer: object, body: bytes) -> bytes:
        cluster.shard0.propose(body)
        await asyncio.sleep(0)
        raise UnknownOutcome("the connection broke")

    cluster.hosts["s1"].requests.register(raw(PROPOSE), lost)
    cluster.hosts["s2"].propose_failures = [PermissionDenied("who speaks for whom")]
    with pytest.raises(UnknownOutcome) as caught:
        await cluster.clients["s3"].allocate_ids("k", 1, "request", 5.0)
    assert "PERMISSION_DENIED" in caught.value.message


async def test_services_beat_through_any_store() -> None:
    cluster = Cluster()
    beat = proposals.ServiceHeartbeat("cn-1", "cn", "host:1", {"zone": "a"})
    reply = await cluster.clients["s3"].service_heartbeat(beat, 1.0)
    assert reply.commands == ()
    assert cluster.shard0.rsm.state.services["cn-1"].labels == {"zone": "a"}


def _beat(number: int, *incarnations: int) -> proposals.StoreHeartbeat:
    """A heartbeat of store `s<number>`, whose own data directory is 100 + `number`."""
    directories = tuple(
        proposals.DirectoryReport(Incarnation(one)) for one in incarnations or (100 + number,)
    )
    return proposals.StoreHeartbeat(
        StoreId(f"s{number}"), "", f"s{number}:1", f"s{number}:50", directories, 7, 1
    )


async def test_a_store_reports_for_itself_only() -> None:
    """INV-PEER-1, beyond the handshake: a peer proposes only its own heartbeat."""
    cluster = Cluster()
    for forged in (_beat(1), _beat(3, 101), _beat(3, 101, 102)):
        with pytest.raises(PermissionDenied):
            await cluster.hosts["s3"].transport.request(
                "s2", HEARTBEAT.method, proposals.encode(forged), 1.0
            )
    assert cluster.count(proposals.StoreHeartbeat) == 0
    assert cluster.hosts["s2"].requests.refused[HEARTBEAT.method, "not its own"] == 3
    for own in (_beat(3), _beat(3, 103, 999)):
        await cluster.hosts["s3"].transport.request(
            "s2", HEARTBEAT.method, proposals.encode(own), 1.0
        )
    assert cluster.count(proposals.StoreHeartbeat) == 2


@pytest.mark.parametrize(
    "proposal",
    [
        proposals.Tick(Term(1)),
        proposals.InitialCluster("c", b"", (), 1, 1),
        proposals.CreateShard(ShardId(9), "mine", 1),
        proposals.SetPhase(Phase.RUNNING),
        proposals.ScheduleCommands(
            Term(1), (proposals.Order("s1", TransferLeader(ShardId(1), ReplicaId(1))),)
        ),
        proposals.ChangeAccess("spiffe://d/cluster/c/client/x", "cluster", ("admin",)),
        proposals.AckCommands("s2", ()),
        _beat(3),
    ],
    ids=lambda proposal: type(proposal).__name__,
)
async def test_a_peer_proposes_no_administration(proposal: proposals.Proposal) -> None:
    cluster = Cluster()
    before = cluster.shard0.rsm.save_snapshot()
    for method in (PROPOSE.method, HEARTBEAT.method):
        if method == HEARTBEAT.method and isinstance(proposal, proposals.StoreHeartbeat):
            continue
        with pytest.raises(PermissionDenied):
            await cluster.hosts["s3"].transport.request(
                "s2", method, proposals.encode(proposal), 1.0
            )
        assert cluster.hosts["s2"].requests.refused.total() > 0
    assert cluster.shard0.rsm.save_snapshot() == before


async def _stores(cluster: Cluster) -> None:
    cluster.shard0.propose(proposals.encode(_beat(1)))
    await asyncio.sleep(0)


@pytest.mark.parametrize("name", ["s1", "s3"])
@pytest.mark.parametrize("logs", [0, 1, 256, 257, 600])
async def test_a_large_cluster_is_shown_whole_and_asked_for_in_pages(name: str, logs: int) -> None:
    cluster = Cluster()
    state = cluster.shard0.rsm.state
    for number in range(1, logs + 1):
        state.shards[ShardId(number)] = ShardState(ShardId(number), f"log-{number}", 3, 0)
    whole = cluster.shard0.rsm.lookup(queries.GetCluster())
    cluster.hosts[name].cluster_version.learn(2)
    assert await cluster.clients[name].cluster(1.0) == whole
    asked = [one for one in cluster.network.requests if one[1] == LOOKUP.method]
    assert len(asked) == (0 if name == "s1" else 1 + max(1, -(-logs // 256)))


async def test_below_version_2_the_cluster_is_one_answer() -> None:
    cluster = Cluster()
    assert (await cluster.clients["s3"].cluster(1.0)).cluster_id == "c"
    assert len(cluster.network.requests) == 1
