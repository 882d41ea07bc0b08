"""Comparison, the member's side: answers with digests, and halts what is found to be wrong.

See `comparison` for the whole. The asker is a store like any other and may be wrong, late, or lie.
So a finding is a reason to ask, and nothing else: the members that are right say so themselves, and
in a shard of three one liar halts nobody but itself.

- INV-COMPARE-1: a replica halts for a difference only after its own store has read its digest, has
  asked every other member over its own connections, and has judged by what it was told and by its
  own membership. Where nobody can decide, it has itself seen so for COMPARE_UNDECIDED_S_MAX.
- INV-COMPARE-3: a CONTESTED shard is not repaired in place: any copy would be one side's.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from logservice_wire.errors import Busy, Halted, InvalidArgument, ShardNotFound
from logservice_wire.value import value

from logservice import bounds
from logservice.clock import Clock
from logservice.events import Event, emit
from logservice.ids import Index, ReplicaId, ShardId
from logservice.nodehost.hearing.asking import asked_of
from logservice.nodehost.integrity.digests import (
    DIGEST,
    FINDING,
    DigestAnswer,
    DigestWanted,
    Finding,
    ask_others,
    describe_range,
    read_digest,
)
from logservice.nodehost.integrity.divergence import Verdict, judge
from logservice.nodehost.peers.requests import PeerRequests
from logservice.nodehost.replica.replica import Replica
from logservice.nodehost.replica.replica_table import ReplicaTable
from logservice.nodehost.transport.seam import PeerIdentity

logger = logging.getLogger(__name__)


_OF_THE_LEADERS: Final = 0.9


@value
class _Halted:
    """What a replica that halted here for a difference had, when it did."""

    replica: Replica
    low: Index
    high: Index
    answer: DigestAnswer


class ComparisonAnswers:
    """One per store; answers its peers from the beginning."""

    def __init__(
        self,
        replicas: ReplicaTable,
        requests: PeerRequests,
        clock: Clock,
        on_undecided: Callable[[ShardId, Index], None],
    ) -> None:
        """Take the peers' requests. `on_undecided`: there is a difference, in the range
        that begins there, that whoever leads has to look at again.
        """
        self.totals: Counter[str] = Counter()
        self._replicas = replicas
        self._requests = requests
        self._clock = clock
        self._on_undecided = on_undecided
        self._serving = 0
        self._asking: set[ShardId] = set()
        self._since: dict[ShardId, tuple[Index, float]] = {}
        self._halted: dict[ShardId, _Halted] = {}
        requests.register(DIGEST, self._serve)
        requests.register(FINDING, self._on_finding)

    def halt(
        self,
        replica: Replica,
        low: Index,
        high: Index,
        digests: Mapping[ReplicaId, bytes],
        *,
        waited: bool,
    ) -> None:
        """Judge by what is known here, and halt the replica if that is what follows.

        `digests` has that of the replica itself, which was read here. `waited`: see `Finding`.
        """
        judgement = judge(replica.raft.membership, digests)
        where = describe_range(replica, low, high)
        what = where["what"]
        log = replica.log
        if replica.replica_id in judgement.wrong:
            reason = f"not what a majority has: {what}"
            # A state cannot be fetched: 0 is STATE, and says that another replica has to come.
            log.blame(reason, low)
        elif waited and judgement.verdict in (Verdict.CONTESTED, Verdict.UNDECIDED):
            shown = ", ".join(f"{one}: {digests[one].hex()}" for one in sorted(digests))
            reason = f"no majority of replicas agrees on {what}; digests: {shown}"
            # INV-COMPARE-3: by not saying what to repair.
            log.blame(reason)
            emit(logger, Event.SHARD_CONTESTED, shard=replica.shard, **where)
        else:
            if judgement.verdict is not Verdict.EQUAL:
                self._on_undecided(replica.shard, low)
            return
        self.totals["halted"] += 1
        own = digests[replica.replica_id]
        answer = DigestAnswer(replica.reader.first_index(), replica.applied, own)
        self._halted[replica.shard] = _Halted(replica, low, high, answer)
        self._replicas.halt(replica, reason)

    async def _serve(self, peer: PeerIdentity, wanted: DigestWanted) -> DigestAnswer:
        halted = self._halted_for(wanted)
        if halted is not None:
            # Whoever is told of the same difference asks, too: what was here is still said.
            asked_of(halted.replica, peer, wanted)
            return halted.answer
        replica = self._asked(peer, wanted)
        try:
            digest = await self._read(replica, Index(wanted.low), Index(wanted.high))
        except (ShardNotFound, Halted):
            # It halted while it was read. Without its digest the asker could not decide, and nobody
            # is left who would tell the asker again.
            halted = self._halted_for(wanted)
            if halted is None:
                raise
            return halted.answer
        first, applied = replica.reader.first_index(), replica.applied
        return DigestAnswer(first, applied, digest or b"")

    def _halted_for(self, wanted: DigestWanted) -> _Halted | None:
        """What halted here for a difference in just that range."""
        halted = self._halted.get(ShardId(wanted.shard))
        if (
            halted is None
            or halted.replica.shard in self._replicas.running
            or (halted.low, halted.high) != (wanted.low, wanted.high)
        ):
            return None
        return halted

    async def _on_finding(self, peer: PeerIdentity, found: Finding) -> None:
        replica = self._asked(peer, found)
        low, high = Index(found.low), Index(found.high)
        digests = {ReplicaId(one): digest for one, digest in found.digests}
        if replica.shard in self._asking:
            raise Busy("the members are being asked", retry_after_ms=1000)
        self._asking.add(replica.shard)
        try:
            own = await self._read(replica, low, high)
            if own is None or digests.get(replica.replica_id) != own:
                raise InvalidArgument("that is not what is here", field="digests")
            told = await ask_others(self._requests, replica, low, high)
        finally:
            self._asking.discard(replica.shard)
        if replica.stopped:
            raise ShardNotFound("the replica stopped", shard=replica.shard)
        digests = {replica.replica_id: own, **told}
        waited = found.waited and self._waited(replica, low, digests)
        self.halt(replica, low, high, digests, waited=waited)

    def _waited(self, replica: Replica, low: Index, digests: Mapping[ReplicaId, bytes]) -> bool:
        """Whether it is sure here that nobody will decide: everybody has answered, or this store
        has seen for long enough that too few do.
        """
        verdict = judge(replica.raft.membership, digests).verdict
        if verdict is not Verdict.UNDECIDED:
            self._since.pop(replica.shard, None)
            return verdict is Verdict.CONTESTED
        now_s = self._clock.monotonic()
        known = self._since.get(replica.shard)
        if known is None or known[0] != low:
            known = self._since[replica.shard] = (low, now_s)
        # The leader began a moment earlier.
        return now_s - known[1] > bounds.COMPARE_UNDECIDED_S_MAX * _OF_THE_LEADERS

    def _asked(self, peer: PeerIdentity, message: DigestWanted | Finding) -> Replica:
        """The replica that is meant. Raises ShardNotFound, Halted, and what `asked_of` raises."""
        replica = asked_of(self._replicas.running[ShardId(message.shard)], peer, message)
        if replica.witness:
            raise ShardNotFound("no records are here", shard=replica.shard)
        return replica

    async def _read(self, replica: Replica, low: Index, high: Index) -> bytes | None:
        if self._serving >= bounds.COMPARE_SERVED_MAX:
            raise Busy("too many comparisons at once", retry_after_ms=1000)
        self._serving += 1
        try:
            digest = await read_digest(replica, low, high)
        finally:
            self._serving -= 1
        self.totals["served"] += 1
        return digest
