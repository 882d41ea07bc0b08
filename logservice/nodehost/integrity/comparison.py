"""Comparison: holds the replicas of a shard against each other, so that none differs silently.

Theory of operation. Checksums find bytes that changed; they say nothing about a record that is
intact and wrong. So the store of a shard's leader goes through what is applied, from the first
entry on, a range at a time. It asks every member's store for the digest of the same entries, read
from that store's disk, and judges (`divergence`). Ranges end at multiples of COMPARE_RANGE_ENTRIES,
or earlier at COMPARE_RANGE_BYTES. They lie above the first index of everybody who answered, because
what one member has compacted is truncated and nobody reads it.

At the end of a shard its state is compared in the same way, if it pauses (`digests`).

    WRONG       the leader's store tells the wrong replica's store. That store reads its own range
                again, asks all members itself, judges by what it was told, and only then halts the
                replica: faulty from the range on. Such a replica is repaired in place from its
                peers (`repair`), or replaced; one with a wrong state is replaced
    UNDECIDED   the difference is reported. Whoever leads looks at that range alone again every
                COMPARE_RETRY_S, whatever else is under way. After COMPARE_UNDECIDED_S_MAX it
                counts as CONTESTED
    CONTESTED   every replica that was asked halts, for good (G7): no append, no read, until a
                person decides

A pass visits every shard that is led here, and there is a long pause between passes. Nothing goes
through Raft, so no quiesced shard wakes up. A shard that was compared wholly and has not changed
since is left out. Reading is done aside of the loop and is paid for (`read_budget`).

References: docs/guarantees.md, G6, G7.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from logservice_wire.errors import (
    DeadlineExceeded,
    Halted,
    LogServiceError,
    ShardNotFound,
)
from logservice_wire.value import value

from logservice import bounds
from logservice.clock import Clock
from logservice.events import Event, emit
from logservice.ids import Index, ReplicaId, ShardId, StoreId
from logservice.nodehost.integrity.comparison_answers import ComparisonAnswers
from logservice.nodehost.integrity.digests import (
    FINDING,
    STATE,
    STATE_FORM_BYTES,
    DigestAnswer,
    Finding,
    NoAnswer,
    ask_digest,
    describe_range,
    other_holders,
    range_end,
    read_digest,
)
from logservice.nodehost.integrity.divergence import Judgement, Verdict, judge
from logservice.nodehost.integrity.pass_timer import PassTimer
from logservice.nodehost.peers.requests import PeerRequests
from logservice.nodehost.replica.replica import Replica
from logservice.nodehost.replica.replica_table import ReplicaTable
from logservice.raft.ready import Role

logger = logging.getLogger(__name__)

_TRIES: Final = 3
_PAUSE_S: Final = 0.2
"""Followers hear of the last commit with the next message or tick; then they have applied it."""


@value
class _Compared:
    """Of a shard that was compared wholly: its members' epoch, and what was applied."""

    epoch: Index
    through: Index


@value
class _Undecided:
    """A difference: since when, and where its range begins (STATE: it is the state's)."""

    since_s: float
    low: Index


@value
class _Seen:
    """Where the next range begins, None to end here. whole: every member answered. settled: a
    majority agrees, and whoever does not was told.
    """

    next: Index | None
    whole: bool = True
    settled: bool = True


class Comparer:
    """One per store. `run` until cancelled, or `run_once` by whoever keeps the time.

    pass_shards, pass_shards_done: of the pass under way; 0 between passes.
    """

    def __init__(
        self,
        replicas: ReplicaTable,
        requests: PeerRequests,
        clock: Clock,
        *,
        pass_interval_s: float = bounds.SCRUB_PASS_INTERVAL_S,
    ) -> None:
        """Answers its peers from now on."""
        self._replicas = replicas
        self._requests = requests
        self._clock = clock
        self.timer = PassTimer(clock, pass_interval_s, bounds.COMPARE_FIRST_PASS_S)
        """When a pass is due; the pause between passes may be changed."""
        self._compared: dict[ShardId, _Compared] = {}
        self._undecided: dict[ShardId, _Undecided] = {}
        self._looked_s = 0.0
        self._work: deque[tuple[ShardId, Index | None]] = deque()
        self._silent: set[StoreId] = set()
        self.pass_shards = self.pass_shards_done = 0
        self._answers = ComparisonAnswers(replicas, requests, clock, self._note_undecided)
        self._totals = self._answers.totals

    @property
    def counts(self) -> Mapping[str, int]:
        """passes; ranges, states compared; wrong (replicas found to be), undecided, contested
        (differences); served (digests for peers); refused (answers that were none); halted
        (replicas here).
        """
        return dict(self._totals)

    @property
    def undecided(self) -> Sequence[ShardId]:
        """Shards led here with a difference that nobody has decided yet."""
        return sorted(shard for shard in self._undecided if self._led(shard) is not None)

    def compared_through(self, shard: ShardId) -> Index:
        """The last entry of the newest comparison of a whole log that is led here; 0 for none."""
        found = self._compared.get(shard)
        return found.through if found is not None else Index(0)

    async def run(self) -> None:
        """Compare for ever."""
        while True:
            await self.timer.wait(bounds.COMPARE_RETRY_S if self._undecided else float("inf"))
            await self.run_once()

    async def run_once(self) -> None:
        """A whole pass when one is due, else another look at what is undecided.

        What a difference kept from being compared, behind it, follows when it is decided.
        """
        self._silent.clear()
        is_pass = self.timer.due
        if is_pass:
            infos = self._replicas.infos()
            shards = [info.shard for info in infos if info.role is Role.LEADER]
            led = set(shards)
            for shard in [shard for shard in self._compared if shard not in led]:
                del self._compared[shard]
            self.pass_shards, self.pass_shards_done = len(shards), 0
            self._work = deque((shard, None) for shard in shards)
            self._looked_s = self._clock.monotonic()
        else:
            await self._look_again()
        while self._work:
            shard, low = self._work.popleft()
            try:
                await self._compare(shard, low)
            except LogServiceError as error:
                logger.info("shard %d: the comparison did not get on: %s", shard, error.message)
            self.pass_shards_done += is_pass and low is None
        if is_pass:
            self.pass_shards = self.pass_shards_done = 0
            self._totals["passes"] += 1
            self.timer.passed()

    def _led(self, shard: ShardId) -> Replica | None:
        replica = self._replicas.running.get(shard)
        return replica if replica is not None and replica.ready_to_lead else None

    def _note_undecided(self, shard: ShardId, low: Index) -> None:
        self._undecided.setdefault(shard, _Undecided(self._clock.monotonic(), low))

    async def _look_again(self) -> None:
        """At every difference that is undecided, and at nothing else of its shard: how long that
        takes must not depend on how much is to be compared, or the copy of one side that HAKeeper
        makes of a lost member would decide (COMPARE_UNDECIDED_S_MAX).
        """
        # Who did not answer is asked again: it may be the one that decides.
        silent, self._silent = self._silent, set()
        for shard, noted in list(self._undecided.items()):
            try:
                await self._look_again_at(shard, noted.low)
            except LogServiceError as error:
                logger.info("shard %d: nothing was decided: %s", shard, error.message)
        self._silent |= silent
        self._looked_s = self._clock.monotonic()

    async def _look_again_at(self, shard: ShardId, low: Index) -> None:
        replica = self._led(shard)
        if replica is None:
            return
        others = other_holders(replica)
        if low == STATE:
            seen = await self._state(replica, others)
        else:
            seen = await self._range(replica, others, low, replica.applied)
        if seen.settled and (seen.next is None or seen.next > low):
            self._undecided.pop(shard, None)
            if seen.next is not None and low != STATE:
                self._work.append((shard, seen.next))

    async def _compare(self, shard: ShardId, low: Index | None) -> None:
        """One shard, from `low` or else from its first entry through what is applied now."""
        replica = self._led(shard)
        if replica is None:
            return
        present = _Compared(replica.raft.membership.change_epoch, replica.applied)
        others = other_holders(replica)
        if not others or (low is None and self._compared.get(shard) == present):
            return
        start, settled = low, True
        whole = start is None
        if low is None:
            low = replica.reader.first_index()
        while low is not None and low <= present.through:
            if self._led(shard) is not replica:
                return
            seen = await self._range(replica, others, low, present.through)
            low, whole, settled = seen.next, whole and seen.whole, settled and seen.settled
            if self._clock.monotonic() - self._looked_s >= bounds.COMPARE_RETRY_S:
                await self._look_again()
        if settled and self._led(shard) is replica:
            seen = await self._state(replica, others)
            whole, settled = whole and seen.whole, seen.settled
        if settled:
            noted = self._undecided.get(shard)
            if noted is not None and (start is None or noted.low == STATE or noted.low >= start):
                del self._undecided[shard]
            if whole:
                self._compared[shard] = present

    async def _range(
        self, replica: Replica, others: Sequence[ReplicaId], low: Index, through: Index
    ) -> _Seen:
        """Compare one range and act on what is found."""
        low = max(low, replica.reader.first_index())
        if low > through:
            return _Seen(None)
        high = range_end(replica, low, through)
        mine = await read_digest(replica, low, high)
        answers: list[DigestAnswer | None] = []
        for _ in range(_TRIES):
            answers = await asyncio.gather(*(self._ask(replica, o, low, high) for o in others))
            if not any(answer is not None and _near(answer, low, high) for answer in answers):
                break
            await asyncio.sleep(_PAUSE_S)
        if self._led(replica.shard) is not replica:
            return _Seen(None, settled=False)
        if mine is None:
            return _Seen(replica.reader.first_index())
        first = max((answer.first for answer in answers if answer is not None), default=0)
        if first > low:
            # Somebody compacted it: nobody reads it any more.
            return _Seen(Index(min(first, high)))
        digests = {replica.replica_id: mine} | _digests(others, answers)
        self._totals["ranges"] += 1
        whole = len(digests) == len(others) + 1
        judgement = judge(replica.raft.membership, digests)
        if judgement.verdict is Verdict.EQUAL:
            return _Seen(high, whole, judgement.majority)
        return await self._differ(replica, low, high, digests, judgement)

    async def _state(self, replica: Replica, others: Sequence[ReplicaId]) -> _Seen:
        """Compare what the state machines have made of the entries, if the shard pauses."""
        if replica.log_rsm is None:
            return _Seen(None)
        digests: dict[ReplicaId, bytes] = {}
        at = replica.applied
        for _ in range(_TRIES):
            at = replica.applied
            mine = await read_digest(replica, STATE, at)
            asked = [self._ask(replica, one, STATE, at) for one in others]
            answers = await asyncio.gather(*asked)
            if self._led(replica.shard) is not replica or mine is None:
                return _Seen(None, settled=False)
            form = mine[:STATE_FORM_BYTES]
            found = _digests(others, answers)
            same = {one: text for one, text in found.items() if text.startswith(form)}
            digests = {replica.replica_id: mine} | same
            if all(answer is None or answer.digest for answer in answers):
                break
            await asyncio.sleep(_PAUSE_S)
        self._totals["states"] += len(digests) > 1
        judgement = judge(replica.raft.membership, digests)
        if judgement.verdict is not Verdict.EQUAL:
            return await self._differ(replica, STATE, at, digests, judgement)
        # A busy shard has no answers. That settles nothing, but is nothing to be settled either.
        settled = judgement.majority or replica.shard not in self._undecided
        return _Seen(None, len(digests) > len(others), settled)

    async def _differ(
        self,
        replica: Replica,
        low: Index,
        high: Index,
        digests: Mapping[ReplicaId, bytes],
        judgement: Judgement,
    ) -> _Seen:
        shard, now_s = replica.shard, self._clock.monotonic()
        where = describe_range(replica, low, high)
        verdict = judgement.verdict
        waited = verdict is Verdict.CONTESTED
        if verdict is Verdict.UNDECIDED:
            if shard not in self._undecided:
                self._totals["undecided"] += 1
                who = sorted(digests)
                emit(logger, Event.DIVERGENCE_UNDECIDED, shard=shard, replicas=who, **where)
            self._note_undecided(shard, low)
            waited = now_s - self._undecided[shard].since_s > bounds.COMPARE_UNDECIDED_S_MAX
        told = tuple(digests)
        if verdict is Verdict.WRONG:
            told = judgement.wrong
            self._totals["wrong"] += len(told)
            emit(logger, Event.DIVERGENCE_FOUND, shard=shard, replicas=list(told), **where)
        elif waited:
            self._totals["contested"] += 1
        rows = [(int(one), digest) for one, digest in sorted(digests.items())]
        heard = await asyncio.gather(
            *(
                self._tell(replica, one, low, high, rows, waited=waited)
                for one in told
                if one != replica.replica_id
            )
        )
        if replica.replica_id in told:
            # Last, because it is the one that could tell the others.
            self._answers.halt(replica, low, high, digests, waited=waited)
        if verdict is Verdict.WRONG and all(heard) and not replica.stopped:
            return _Seen(high, whole=False)
        # Undecided; or a store could not be told, and its replica may go on being read.
        self._note_undecided(shard, low)
        return _Seen(None, settled=False)

    async def _ask(
        self, replica: Replica, other: ReplicaId, low: Index, high: Index
    ) -> DigestAnswer | None:
        """None when it has no answer, or one that is none."""
        store = replica.store_of(other)
        if store is None or store in self._silent:
            return None
        try:
            answer = await ask_digest(self._requests, replica, other, low, high)
            # Only the leader can say so: a follower hears of a commit after others have applied it.
            if answer.applied > replica.raft.commit:
                raise NoAnswer("it applied what is not committed")
            return answer
        except NoAnswer as error:
            self._totals["refused"] += 1
            logger.warning("shard %d: the answer of %s is none: %s", replica.shard, store, error)
        except LogServiceError as error:
            logger.debug("shard %d: store %s has no digest: %s", replica.shard, store, error)
            if isinstance(error, DeadlineExceeded):
                # Waited for once per pass, not once per range.
                self._silent.add(store)
        return None

    async def _tell(
        self,
        replica: Replica,
        other: ReplicaId,
        low: Index,
        high: Index,
        rows: list[tuple[int, bytes]],
        *,
        waited: bool,
    ) -> bool:
        """Whether the other's store heard it."""
        store = replica.store_of(other)
        if store is None:
            return False
        found = Finding(replica.shard, other, replica.replica_id, low, high, waited, rows)
        try:
            await self._requests.ask(store, FINDING, found, bounds.COMPARE_FINDING_TIMEOUT_S)
        except (Halted, ShardNotFound):
            return True
        except LogServiceError as error:
            logger.warning("shard %d: %s was not told: %s", replica.shard, store, error)
            return False
        return True


def _near(answer: DigestAnswer, low: Index, high: Index) -> bool:
    """It does not have all of the range yet, but will soon."""
    return low - bounds.COMPARE_RANGE_ENTRIES <= answer.applied < high - 1


def _digests(
    others: Sequence[ReplicaId], answers: Sequence[DigestAnswer | None]
) -> dict[ReplicaId, bytes]:
    return {
        one: answer.digest
        for one, answer in zip(others, answers, strict=True)
        if answer is not None and answer.digest
    }
