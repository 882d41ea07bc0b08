"""Comparison, the member's side: answers with digests, and halts what is found to be wrong.

See `comparison` for the whole. The asker is a store like any other and may be wrong, late, or not
who it says; so a finding moves nothing by itself:

- INV-COMPARE-1: a replica halts for a difference only after its own store has read the same digest
  and come to the same judgement by its own membership.
- INV-COMPARE-3: a CONTESTED shard is not repaired in place: any copy would be one side's.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from logservice_wire.errors import Busy, InvalidArgument, ShardNotFound

from logservice import bounds
from logservice.clock import Clock
from logservice.events import Event, emit
from logservice.ids import Index, ReplicaId, ShardId
from logservice.nodehost.compared_range import digest_of, span
from logservice.nodehost.comparison_wire import (
    DIGEST,
    FINDING,
    Answer,
    Ask,
    Finding,
    decode_ask,
    decode_finding,
    encode,
)
from logservice.nodehost.divergence import Verdict, judge
from logservice.nodehost.info import ReplicaInfo
from logservice.nodehost.peer_requests import PeerHandler, PeerRule, member_of
from logservice.nodehost.replica import Replica
from logservice.nodehost.transport.seam import PeerIdentity

logger = logging.getLogger(__name__)


class ComparisonHost(Protocol):
    """What comparing needs of a NodeHost; see there."""

    @property
    def clock(self) -> Clock:
        """When the next pass is due."""
        ...

    def replica_infos(self) -> Sequence[ReplicaInfo]:
        """What runs here."""
        ...

    def replica(self, shard: ShardId) -> Replica:
        """The replica that runs here."""
        ...

    def running(self, shard: ShardId) -> Replica | None:
        """The same, or None."""
        ...

    def halt(self, replica: Replica, reason: str) -> None:
        """It cannot be trusted."""
        ...

    def register_handler(self, method: str, rule: PeerRule, handler: PeerHandler) -> None:
        """Answer peers' requests."""
        ...

    async def peer_request(self, target: str, method: str, body: bytes, timeout_s: float) -> bytes:
        """Ask another store."""
        ...


class ComparisonAnswers:
    """One per store; answers its peers from the beginning."""

    def __init__(
        self, host: ComparisonHost, on_undecided: Callable[[ShardId, Index], None]
    ) -> None:
        """Take the requests of `host`'s peers. `on_undecided`: there is a difference, in the range
        that begins there, that whoever leads has to look at again.
        """
        self.totals: Counter[str] = Counter()
        self._host = host
        self._on_undecided = on_undecided
        self._serving = 0
        digest = member_of(lambda body: ShardId(decode_ask(body).shard))
        finding = member_of(lambda body: ShardId(decode_finding(body).shard))
        host.register_handler(DIGEST, digest, self._serve)
        host.register_handler(FINDING, finding, self._on_finding)

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
        where = span(replica, low, high)
        what = where["what"]
        log = replica.reader.durable_log()
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
        self._host.halt(replica, reason)

    async def _serve(self, peer: PeerIdentity, body: bytes) -> bytes:
        ask = decode_ask(body)
        replica = self._asked(peer, ask)
        digest = await self._read(replica, Index(ask.low), Index(ask.high))
        first, applied = replica.reader.first_index(), replica.applied
        return encode(Answer(first, applied, digest or b""))

    async def _on_finding(self, peer: PeerIdentity, body: bytes) -> bytes:
        found = decode_finding(body)
        replica = self._asked(peer, found)
        low, high = Index(found.low), Index(found.high)
        digests = {ReplicaId(one): digest for one, digest in found.digests}
        own = await self._read(replica, low, high)
        if replica.stopped:
            raise ShardNotFound("the replica stopped", shard=replica.shard)
        if own is None or digests.get(replica.replica_id) != own:
            raise InvalidArgument("that is not what is here", field="digests")
        self.halt(replica, low, high, digests, waited=found.waited)
        return b""

    def _asked(self, peer: PeerIdentity, message: Ask | Finding) -> Replica:
        """The replica that is meant. Raises ShardNotFound, Halted, and InvalidArgument when the
        store does not speak for the member that asks.
        """
        replica = self._host.replica(ShardId(message.shard))
        if replica.replica_id != message.replica:
            raise ShardNotFound(f"replica {message.replica} is not here", shard=replica.shard)
        asker = replica.raft.membership.member(ReplicaId(message.asker))
        if asker is None or not peer.may_speak_for(asker):
            raise InvalidArgument("the asker is no member, or elsewhere", field="asker")
        return replica

    async def _read(self, replica: Replica, low: Index, high: Index) -> bytes | None:
        if self._serving >= bounds.COMPARE_SERVED_MAX:
            raise Busy("too many comparisons at once", retry_after_ms=1000)
        self._serving += 1
        try:
            digest = await digest_of(replica, low, high)
        finally:
            self._serving -= 1
        self.totals["served"] += 1
        return digest
