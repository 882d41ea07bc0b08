"""Bootstrap: the first start of shard 0, exactly once.

Theory of operation. The configuration names the stores that form shard 0 at first, in an order that
gives them replica ids 1..n. It cannot name their incarnations; those are asked for (a store with
several data directories names the one in which shard 0 shall be). To keep two stores from recording
different answers, one member decides: the first in the list. It asks all the others. When *every
one* reports that it was never bootstrapped, the first member records the membership with the
incarnations they reported, and starts. Every other member starts when somebody reports a recorded
initial membership that names exactly this store and this incarnation. So only one initial
membership can come to exist while no data directory of a member is lost. If one is lost in between,
the membership names its store with another incarnation, and the store refuses to start:
an emptied disk never votes. HAKeeper replaces it later like any lost replica.

INV-BOOT-1: shard 0 is bootstrapped only by the first member, only after every member was heard to
be never bootstrapped in this very attempt. INV-BOOT-2: a store never starts an initial replica of
shard 0 under a membership that names it with an incarnation that it has not, nor when it remembers
a running HAKeeper, nor when shard 0 has data here (NodeHost starts that), nor when a data directory
here has an unattributed loss (INV-DIR-4): what was lost may have been shard 0.

A store that decided to start says so when asked, before its record is durable. The answer errs
towards "bootstrapped", which only makes others wait.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from logservice_wire.errors import Halted, InvalidArgument, LogServiceError, NotReady
from msgspec import Struct

from logservice import bounds
from logservice.hakeeper.commands.wire_types import MembershipBytes, Store, StoreIncarnation
from logservice.hakeeper.repair.bootstrap import initial_membership
from logservice.ids import HAKEEPER_SHARD, ReplicaId, StoreId
from logservice.membership import Member, Membership, MembershipCorrupt
from logservice.nodehost.agent.address_book import AddressBook
from logservice.nodehost.node_host import NodeHost
from logservice.nodehost.peers.question import NOTHING, Asker, packed, question
from logservice.nodehost.transport.seam import PeerIdentity

logger = logging.getLogger(__name__)


class BootstrapOutcome(enum.Enum):
    """What became of this store's part in the first start."""

    NOT_A_MEMBER = "not_a_member"
    """The configuration does not name this store: HAKeeper will tell it what to run."""
    STORED = "stored"
    """Shard 0 has, or had, its place here: what log storage holds was started by NodeHost."""
    STARTED = "started"
    REFUSED = "refused"
    """Shard 0 was bootstrapped without this data directory; HAKeeper decides what to do."""


@dataclass(frozen=True, slots=True)
class InitialMember:
    """A store of the configuration's list."""

    store_id: StoreId
    peer_address: str


class Probe(Struct, array_like=True, forbid_unknown_fields=True):
    """A store's answer. `initial`: shard 0's initial membership as recorded here, empty if none."""

    store: Store
    incarnation: StoreIncarnation
    bootstrapped: bool
    initial: MembershipBytes


PROBE: Final = question("bootstrap.probe", Asker.ENROLLED, NOTHING, packed(Probe))


class Bootstrapper:
    """One per store. `serve` before the transport starts, then `run` once."""

    def __init__(
        self,
        host: NodeHost,
        book: AddressBook,
        members: Sequence[InitialMember],
        *,
        unattributed_loss: bool = False,
    ) -> None:
        """`members` in the order of the configuration, the same on every store. unattributed_loss:
        recovery found damage that it could not attribute.
        """
        self._host = host
        self._book = book
        self._members = tuple(members)
        self._unattributed_loss = unattributed_loss
        self._starting: Membership | None = None
        self.refused = ""
        """Why shard 0 does not start here, for people; empty unless the outcome is REFUSED."""
        self.waiting = ""
        """What the first start waited for in its newest round, for people."""

    def serve(self) -> None:
        """Answer probes."""
        self._host.requests.register(PROBE, self._serve_probe)

    async def run(self, timeout_s: float) -> BootstrapOutcome:
        """Take part in the first start, or find that there is nothing to do.

        Raises NotReady, naming who did not answer, when `timeout_s` passed first; nothing was
        started then, and it may be called again.
        """
        me = self._host.identity.store_id
        # What HAKeeper said of a store's address comes before the configured one: the store may
        # have moved since, and nobody would tell us again.
        for store in self._book.peer_addresses():
            if store != me:
                self._host.transport.set_address(store, *self._book.candidates(store))
        stored = self._host.directories.bootstrap_of(HAKEEPER_SHARD) is not None or self._has_data
        if stored or self._book.knows_hakeeper:
            return BootstrapOutcome.STORED
        if me not in [member.store_id for member in self._members]:
            return BootstrapOutcome.NOT_A_MEMBER
        deadline_s = self._host.clock.monotonic() + timeout_s
        while True:
            probes = await self._probe_all()
            outcome = await self._decide(probes)
            if outcome is not None:
                return outcome
            if self._book.knows_hakeeper:
                return BootstrapOutcome.STORED
            if self._host.clock.monotonic() >= deadline_s:
                silent = [
                    member.store_id for member in self._members if member.store_id not in probes
                ]
                self.waiting = f"shard 0 waits for its initial members: {', '.join(silent)}"
                raise NotReady(self.waiting, silent=",".join(silent))
            await asyncio.sleep(bounds.PROBE_INTERVAL_S)

    @property
    def _has_data(self) -> bool:
        """Shard 0 was here, be it damaged beyond its bootstrap record, or may have been: this is no
        first start.
        """
        return self._unattributed_loss or any(
            shard == HAKEEPER_SHARD for shard, _ in self._host.directories.replicas()
        )

    async def _decide(self, probes: Mapping[StoreId, Probe]) -> BootstrapOutcome | None:
        """Start, refuse, or None: ask again."""
        recorded = [Membership.decode(probe.initial) for probe in probes.values() if probe.initial]
        me, mine = self._host.identity.store_id, self._host.identity.incarnations
        named = [
            member
            for membership in recorded
            for member in membership.members
            if member.store_id == me
        ]
        if recorded and any(member.incarnation not in mine for member in named):
            return self._refuse(
                "shard 0 was bootstrapped with another data directory of this store"
            )
        if len(set(recorded)) > 1:
            logger.error("recorded initial memberships: %s", recorded)
            return self._refuse("the initial members recorded different memberships of shard 0")
        if recorded and not named:
            return self._refuse("shard 0 was bootstrapped without this store")
        if recorded:
            return await self._start(named[0], recorded[0])
        if any(probe.bootstrapped for probe in probes.values()):
            return None
        if me != self._members[0].store_id or len(probes) < len(self._members):
            return None
        membership = initial_membership(
            [
                Member(ReplicaId(number), member.store_id, probes[member.store_id].incarnation)
                for number, member in enumerate(self._members, 1)
            ]
        )
        return await self._start(membership.members[0], membership)

    def _refuse(self, why: str) -> BootstrapOutcome:
        logger.error("%s", why)
        self.refused = why
        return BootstrapOutcome.REFUSED

    async def _start(self, own: Member, membership: Membership) -> BootstrapOutcome:
        self._starting = membership
        replica = own.replica_id
        try:
            await self._host.replicas.start(
                HAKEEPER_SHARD, replica, membership, join=False, incarnation=own.incarnation
            )
        except (InvalidArgument, Halted) as error:
            # It ran here once and was removed; the address book that would remember is lost. Or
            # its disk has failed since.
            return self._refuse(f"shard 0 does not start here again: {error}")
        finally:
            self._starting = None
        voters = ", ".join(map(str, membership.voters))
        logger.info("shard 0 starts here as replica %d of %s", replica, voters)
        return BootstrapOutcome.STARTED

    async def _probe_all(self) -> dict[StoreId, Probe]:
        """Everybody's answer, this store's included; those who do not answer are missing."""
        answers = await asyncio.gather(*(self._probe(member) for member in self._members))
        return {answer.store: answer for answer in answers if answer is not None}

    async def _probe(self, member: InitialMember) -> Probe | None:
        if member.store_id == self._host.identity.store_id:
            return self._own()
        try:
            probe = await self._host.requests.ask(
                member.store_id, PROBE, None, bounds.HAKEEPER_ATTEMPT_TIMEOUT_S
            )
            Membership.decode(probe.initial) if probe.initial else None
        except (LogServiceError, MembershipCorrupt) as error:
            logger.debug("initial member %s does not answer: %s", member.store_id, error)
            return None
        return probe if probe.store == member.store_id else None

    def _own(self) -> Probe:
        identity = self._host.identity
        bootstrap = self._host.directories.bootstrap_of(HAKEEPER_SHARD)
        initial = b""
        if self._starting is not None:
            initial = self._starting.encode()
        elif bootstrap is not None and not bootstrap.join:
            initial = bootstrap.membership.encode()
        known = (
            bool(initial) or bootstrap is not None or self._has_data or self._book.knows_hakeeper
        )
        roomiest = self._host.directories.roomiest()
        return Probe(identity.store_id, roomiest.incarnation, known, initial)

    async def _serve_probe(self, peer: PeerIdentity, asked: None) -> Probe:
        return self._own()
