"""Fake hosts for HAKeeper's shell: one process, peer requests by call, one real state machine.

`Shard0` is the state machine with a log of its own; a FakeHost with `local` set has a replica of
it. The lists of a FakeHost are what tests look at; `down` and `failures` are what they break.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from logservice_wire.errors import (
    LogServiceError,
    NotReady,
    ShardNotFound,
    UnknownOutcome,
)

from logservice.clock import SystemClock
from logservice.config_change import ConfigChange
from logservice.entry import Entry, EntryKind
from logservice.envelope import ProposalId, encode_command
from logservice.hakeeper.commands import proposals
from logservice.hakeeper.commands.proposals import DirectoryReport
from logservice.hakeeper.rsm import HAKeeperRsm
from logservice.ids import (
    HAKEEPER_SHARD,
    NO_REPLICA,
    ClusterId,
    Incarnation,
    Index,
    Lsn,
    ReplicaId,
    ShardId,
    StoreId,
    Term,
)
from logservice.logdb.format.update import Bootstrap
from logservice.membership import Membership
from logservice.nodehost.info import HaltedReplica, ReplicaInfo
from logservice.nodehost.peers.question import Question
from logservice.nodehost.peers.requests import PeerRequests
from logservice.nodehost.quota_table import QuotaTable
from logservice.nodehost.replica.catch_up import CatchUpBudget
from logservice.nodehost.replica.pace import LimitTable
from logservice.nodehost.replica.read_limits import ReadLimits
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.outcome import Applied, Rejected
from logservice.raft.ready import Role
from logservice.sliced import Sliced
from logservice.versions import KnownVersion


class Shard0:
    """HAKeeper's state machine and a log that exists only in memory."""

    def __init__(self) -> None:
        self.rsm = HAKeeperRsm()
        self.index = 1
        self.term = 1
        self.membership = Membership()
        self.applied: list[proposals.Proposal] = []

    def propose(self, command: bytes) -> Applied:
        self.index += 1
        payload = encode_command(ProposalId(1, self.index), command)
        entry = Entry(Term(self.term), Index(self.index), Lsn(1), 0, EntryKind.COMMAND, payload)
        [(_, outcome)] = self.rsm.update(entry)
        self.applied.append(proposals.decode(command))
        if isinstance(outcome, Rejected):
            raise outcome.error()
        return outcome


@dataclass
class FakeNetwork:
    """Hosts by address. `failures` are called before delivery and may raise, `lost` after it."""

    hosts: dict[str, FakeHost] = field(default_factory=dict)
    failures: Callable[[str, str], None] = lambda target, method: None
    lost: Callable[[str, str], bool] = lambda target, method: False
    requests: list[tuple[str, str]] = field(default_factory=list)


class FakeTransport:
    def __init__(self, network: FakeNetwork, identity: PeerIdentity, address: str) -> None:
        self.network = network
        self.identity = identity
        self.address = address
        self.addresses: dict[StoreId, str] = {}
        self.others: dict[StoreId, tuple[str, ...]] = {}

    async def request(self, target: str, method: str, body: bytes, timeout_s: float) -> bytes:
        self.network.requests.append((target, method))
        self.network.failures(target, method)
        host = self.network.hosts.get(self.addresses.get(StoreId(target), f"{target}:1"))
        if host is None or not host.up or host.identity.store_id != target:
            raise NotReady(f"{target} does not answer")
        answer = await host.requests.serve(self.identity, method, body)
        if self.network.lost(target, method):
            raise UnknownOutcome("the connection broke")
        return answer

    def set_address(self, store: StoreId, address: str, *others: str) -> None:
        self.addresses[store] = address
        self.others[store] = others


def raw(question: Question[Any, Any]) -> Question[bytes, bytes]:
    """`question` with bytes as its values, for handlers whose answers no store would give."""
    return replace(
        question,
        encode=lambda body: body,
        decode=lambda body, _: body,
        encode_answer=lambda data: data,
        decode_answer=lambda data, _: data,
    )


class Everybody:
    """A directory in which every store is enrolled."""

    def enrolled(self, peer: PeerIdentity) -> bool:
        return True

    def client_address(self, store: StoreId) -> str:
        return f"{store}:client"


class Nobody(Everybody):
    """A directory in which no store is enrolled."""

    def enrolled(self, peer: PeerIdentity) -> bool:
        return False


class FakeHost:
    """A fake NodeHost; the module's text describes it."""

    def __init__(self, network: FakeNetwork, name: str, shard0: Shard0 | None = None) -> None:
        number = len(network.hosts) + 1
        self.identity = PeerIdentity(
            ClusterId("c"), StoreId(name), (Incarnation(100 + number),), 1000 + number
        )
        self.transport = FakeTransport(network, self.identity, f"{name}:1")
        self.clock = SystemClock()
        self.network = network
        network.hosts[self.transport.address] = self
        self.local = shard0
        self.leads = False
        self.leader = ReplicaId(1)
        self.elsewhere = ""
        self.up = True
        self.requests = PeerRequests(self.identity, self.transport, lambda *_: None)
        self.requests.directory = Everybody()
        self.cluster_version = KnownVersion()
        self.clocks = SimpleNamespace(far=False)
        self.limits = LimitTable()
        self.quotas = QuotaTable()
        self.limit = self.limits.update
        self.catch_up = CatchUpBudget(self.clock)
        self.reads = ReadLimits(self.clock, 7_000_000, 6_000_000)
        self.bootstraps: dict[ShardId, Bootstrap] = {}
        self.infos: dict[ShardId, ReplicaInfo] = {}
        self.stored: set[tuple[ShardId, ReplicaId]] = set()
        self.halts = FakeHalts()
        self.replicas = FakeReplicas(self)
        self.directories = FakeDirectories(self)
        self.router = FakeRouter(self)
        self.calls: list[tuple[object, ...]] = []
        self.failure: LogServiceError | Exception | None = None
        self.propose_failures: list[LogServiceError] = []

    async def propose(self, shard: ShardId, command: bytes, timeout_s: float) -> Applied:
        assert shard == HAKEEPER_SHARD
        if self.propose_failures:
            raise self.propose_failures.pop(0)
        if self.local is None:
            raise ShardNotFound(shard=shard)
        if self.elsewhere:
            raise self.requests.not_leader(StoreId(self.elsewhere))
        return self.local.propose(command)

    async def lookup(self, shard: ShardId, query: object, timeout_s: float) -> object:
        if self.propose_failures:
            raise self.propose_failures.pop(0)
        return self.stale_lookup(shard, query)

    def stale_lookup(self, shard: ShardId, query: object) -> object:
        if self.local is None:
            raise ShardNotFound(shard=shard)
        found = self.local.rsm.lookup(query)
        return found.at_a_stretch() if isinstance(found, Sliced) else found

    def expire(self, shard: ShardId) -> None:
        """Nobody waits here."""

    def fail(self) -> None:
        if self.failure is not None:
            raise self.failure


class FakeReplicas:
    """The replicas of a FakeHost."""

    def __init__(self, host: FakeHost) -> None:
        self._host = host

    async def start(
        self,
        shard: ShardId,
        replica_id: ReplicaId,
        membership: Membership,
        *,
        join: bool,
        incarnation: Incarnation | None = None,
    ) -> None:
        host = self._host
        host.fail()
        assert incarnation in host.identity.incarnations
        host.calls.append(("start", shard, replica_id, membership, join))
        host.bootstraps.setdefault(shard, Bootstrap(membership, join))
        host.stored.add((shard, replica_id))
        host.infos[shard] = info(host.identity, shard, replica_id, membership)

    async def remove(self, shard: ShardId, replica_id: ReplicaId) -> None:
        self._host.fail()
        self._host.calls.append(("remove", shard, replica_id))
        self._host.stored.discard((shard, replica_id))
        self._host.infos.pop(shard, None)

    def bury(self, shard: ShardId) -> None:
        self._host.calls.append(("bury", shard))

    def info(self, shard: ShardId) -> ReplicaInfo | None:
        host = self._host
        if shard == HAKEEPER_SHARD and host.local is not None:
            role = Role.LEADER if host.leads else Role.FOLLOWER
            return info(
                host.identity,
                shard,
                ReplicaId(1),
                host.local.membership,
                role=role,
                term=host.local.term,
                leader=host.leader,
            )
        return host.infos.get(shard)

    def infos(self) -> list[ReplicaInfo]:
        return [self._host.infos[shard] for shard in sorted(self._host.infos)]

    def halt_forgetful(self, shard: ShardId, replica: ReplicaId, through: Index) -> None:
        self._host.calls.append(("forgetful", shard, replica, through))


class FakeDirectories:
    """The data directories of a FakeHost."""

    def __init__(self, host: FakeHost) -> None:
        self._host = host

    def replicas(self) -> list[tuple[ShardId, ReplicaId]]:
        return sorted(self._host.stored)

    def stores(self, shard: ShardId, replica: ReplicaId) -> bool:
        return (shard, replica) in self._host.stored

    def infos(self) -> list[DirectoryReport]:
        return [DirectoryReport(one, 10, 90, path="/d") for one in self._host.identity.incarnations]

    def roomiest(self) -> DirectoryReport:
        return self.infos()[-1]

    def bootstrap_of(self, shard: ShardId) -> Bootstrap | None:
        return self._host.bootstraps.get(shard)


class FakeHalts(dict[ShardId, HaltedReplica]):
    """The halted replicas of a FakeHost; some of them are being repaired."""

    def __init__(self) -> None:
        super().__init__()
        self.repairs: set[ShardId] = set()

    def all(self) -> dict[ShardId, HaltedReplica]:
        return self

    def repairing(self) -> set[ShardId]:
        return self.repairs


class FakeRouter:
    """Notes what a FakeHost is asked to do with memberships and leaderships."""

    def __init__(self, host: FakeHost) -> None:
        self._host = host

    async def change_membership(
        self, shard: ShardId, change: ConfigChange, timeout_s: float
    ) -> Membership:
        self._host.fail()
        self._host.calls.append(("change", shard, change))
        return Membership()

    async def transfer_leadership(
        self, shard: ShardId, target: ReplicaId, timeout_s: float
    ) -> None:
        self._host.fail()
        self._host.calls.append(("transfer", shard, target))


def info(
    identity: PeerIdentity,
    shard: ShardId,
    replica: ReplicaId,
    membership: Membership,
    *,
    role: Role = Role.FOLLOWER,
    term: int = 1,
    leader: ReplicaId = NO_REPLICA,
    applied: int = 1,
) -> ReplicaInfo:
    return ReplicaInfo(
        shard,
        replica,
        identity.store_id,
        identity.incarnations[0],
        membership,
        role,
        Term(term),
        leader,
        Index(1),
        Index(applied),
        Index(applied),
        Index(applied),
        Lsn(1),
        Lsn(0),
        Lsn(0),
        ((ReplicaId(2), Index(applied)),),
        (ReplicaId(2),),
        "",
    )
