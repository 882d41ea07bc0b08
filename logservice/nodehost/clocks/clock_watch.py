"""ClockWatch: compares this store's clock with those of the stores beside it.

Theory of operation. A store's *neighbours* are the stores with members of the shards that have a
replica here; the store itself is one of them. Every CLOCK_LOOK_S, and every second until a majority
has answered, it asks each of them what time it is. That is no secret: it answers any store. An
answer was read between the question and its arrival, so it is taken for the time half-way, and the
error is at most half of the round trip. Answers that took longer than CLOCK_ASK_TIMEOUT_S are not
used. What is kept are offsets to the monotonic clock of this process (`agreement`), which nobody
sets. So a step of the own clock moves nothing that was learned.

`wall_us` says what a leader may stamp (`replica.append_time`):

    a majority agrees           the own clock, but within CLOCK_SKEW_MAX_S of what it agrees on
    answered, never agreed      the own clock, but at most CLOCK_SKEW_MAX_S above the lowest that
                                answered; a log that has a time goes on from it by microseconds
    never answered              nothing. A log goes on from its newest time by microseconds, and one
                                without a time gets none
    all shards are here alone   the own clock: there is nobody to ask

What was agreed on counts until a majority agrees again, however many looks find less. So a clock
that is a year ahead moves no time by more than the bound, one that is a year behind makes no block
old, and appends wait for no clock: times decide nothing about an append.

`past_us` says by what an age may be judged (`replica.retention`): what `wall_us` says, but nothing
while the clock is far. A store that is alone goes by what its clock showed when it was lowest.

The clock is *far* while it is more than CLOCK_SKEW_MAX_S off what a majority agrees on; it is near
again at half of that. Where the majority disagrees nobody becomes far. A far store gives its
leaderships to near ones (`routing.clock_leaving`).

The clock *jumped* if it moved by more than CLOCK_JUMP_MAX_S against the monotonic one between two
ticks: somebody set it, or the host was suspended. It was not believed before, so nothing depends on
it; it is compared again at once. So it is when replicas came or went, and after a raise. A host
that was suspended has a monotonic clock that stood still, and with it what was agreed on. If all
were, a leader would stamp what is appended now with a time long ago. So after a jump nothing is
*confirmed* until a majority agrees again: a log goes on from its newest time by microseconds.

A log that was led by an earlier program may be ahead of all clocks. Its times go on by microseconds
until they are reached; there is no verb to accept or to lower them.

INV-TIME-4: while a majority of the neighbours' clocks is right, no stamp is more than twice
CLOCK_SKEW_MAX_S ahead of the time, one microsecond above the log's newest one excepted. In between
looks the monotonic clock stands for the others; its rate is what a machine's is.
INV-CLOCK-FAR: only what a majority agrees on makes a store's clock far.

The question is newer than release 0.1.0, so it is asked only from cluster version 2 on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Set
from typing import Final

from logservice_wire.errors import LogServiceError
from msgspec import Struct

from logservice import bounds
from logservice.background import begin_task
from logservice.clock import Clock
from logservice.events import Event, emit
from logservice.ids import StoreId
from logservice.nodehost.clocks.agreement import agreed_us, majority_answered
from logservice.nodehost.peers.question import NOTHING, Asker, Question, packed, question
from logservice.nodehost.peers.requests import PeerRequests
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.versions import KnownVersion

logger = logging.getLogger(__name__)

CLOCK_ALARM: Final = "clock wrong"
"""What the alarm of a far clock begins with."""

_NEEDS: Final = 2
"""The first cluster version in which a store knows the question."""

_SKEW_US: Final = int(bounds.CLOCK_SKEW_MAX_S * 1_000_000)
_JUMP_US: Final = int(bounds.CLOCK_JUMP_MAX_S * 1_000_000)


class Time(Struct, array_like=True, forbid_unknown_fields=True):
    """What a store's clock shows, in microseconds since 1970."""

    wall_us: int


TIME: Final[Question[None, Time]] = question("store.time", Asker.ANY, NOTHING, packed(Time))


class ClockWatch:
    """Asks and answers for one NodeHost, on its loop thread.

    far: the clock is. ahead_us: of what a majority agreed on at the newest look; 0 if none did.
    near: the other stores whose clocks were near that at the newest look.
    """

    def __init__(
        self,
        identity: PeerIdentity,
        requests: PeerRequests,
        clock: Clock,
        version: KnownVersion,
        neighbours: Callable[[], Set[StoreId]],
        looked: Callable[[], None],
    ) -> None:
        """`neighbours`: see the module's text; none while no replica runs. `version`: what this
        store has learned. `looked` is called after each look.
        """
        self._store = identity.store_id
        self._requests = requests
        self._clock = clock
        self._version = version
        self._neighbours = neighbours
        self._looked = looked
        self._offset_us = self._least_us = self._read_us()
        self._scene = (0, 0)
        self._alone = False
        self._lowest_us: int | None = None
        self._highest_us: int | None = None
        self._agreed = False
        self._jumps = self._jumps_known = 0
        self._due_s = 0.0
        self._look: asyncio.Task[None] | None = None
        self.far = False
        self.ahead_us = 0
        self.near: Set[StoreId] = frozenset()
        requests.register(TIME, self._on_asked)

    async def stop(self) -> None:
        """Ask nobody any more."""
        if self._look is not None:
            self._look.cancel()
            await asyncio.gather(self._look, return_exceptions=True)

    def wall_us(self) -> int | None:
        """The time of day that may be stamped; None while it is not known."""
        own_us = self._clock.wall_us()
        if self._highest_us is None:
            return own_us if self._alone else None
        passed_us = self._monotonic_us()
        own_us = min(own_us, self._highest_us + passed_us)
        return own_us if self._lowest_us is None else max(own_us, self._lowest_us + passed_us)

    @property
    def confirmed(self) -> bool:
        """Whether `wall_us` is what a majority agrees on, or there is nobody to ask."""
        if not self._agreed:
            return self._highest_us is None and self._alone
        # The newest tick may have been before a jump.
        moved_us = self._read_us() - self._offset_us
        return self._jumps == self._jumps_known and abs(moved_us) <= _JUMP_US

    def past_us(self) -> int | None:
        """A time of day for what cannot be taken back; None while there is none."""
        if self.far:
            return None
        if self._highest_us is None and self._alone:
            return self._least_us + self._monotonic_us()
        return self.wall_us()

    def alarms(self) -> list[str]:
        """What a person must look at; empty when all is well."""
        off = f"{self.ahead_us / 1e6:+.1f} s off what most stores agree on"
        return [f"{CLOCK_ALARM}: {off}"] if self.far else []

    def tick(self, now_s: float, replicas: int) -> None:
        """Time has passed. `replicas`: how many run here."""
        offset_us = self._read_us()
        moved_us, self._offset_us = offset_us - self._offset_us, offset_us
        self._least_us = min(self._least_us, offset_us)
        jumped = abs(moved_us) > _JUMP_US
        if jumped:
            self._jumps += 1
            emit(logger, Event.CLOCK_JUMPED, seconds=round(moved_us / 1e6, 3))
        scene = (replicas, self._version.value)
        if jumped or scene != self._scene:
            self._due_s = now_s
        self._scene = scene
        if now_s < self._due_s or (self._look is not None and not self._look.done()):
            return
        known = self._highest_us is not None
        self._due_s = now_s + (bounds.CLOCK_LOOK_S if known else bounds.CLOCK_ASK_TIMEOUT_S)
        stores = self._neighbours()
        self._alone = stores == {self._store}
        if len(stores) > 1 and self._version.value >= _NEEDS:
            self._look = begin_task(self.look(stores))

    async def look(self, stores: Set[StoreId]) -> None:
        """Ask all neighbours, and judge."""
        others, jumps = sorted(stores - {self._store}), self._jumps
        answers = await asyncio.gather(*(self._ask(store) for store in others))
        offsets = {
            store: offset_us
            for store, offset_us in zip(others, answers, strict=True)
            if offset_us is not None
        }
        self._judge(offsets, len(others) + 1, jumps)
        self._looked()

    def _judge(self, others: Mapping[StoreId, int], known: int, jumps: int) -> None:
        """`jumps`: of the own clock before they were asked."""
        own_us = self._read_us()
        offsets = [own_us, *others.values()]
        agreed = agreed_us(offsets, known, _SKEW_US)
        if agreed is None:
            self.near = frozenset()
            if not self._agreed and majority_answered(offsets, known):
                self._highest_us = min(offsets) + _SKEW_US
            return
        self._agreed, self._jumps_known = True, jumps
        self._lowest_us, self._highest_us = agreed - _SKEW_US, agreed + _SKEW_US
        self.near = frozenset(
            store for store, offset_us in others.items() if abs(offset_us - agreed) <= _SKEW_US
        )
        self.ahead_us = own_us - agreed
        was_far = self.far
        self.far = abs(self.ahead_us) > (_SKEW_US // 2 if was_far else _SKEW_US)
        if self.far != was_far:
            emit(
                logger,
                Event.CLOCK_FAR if self.far else Event.CLOCK_NEAR,
                seconds=round(self.ahead_us / 1e6, 3),
            )

    async def _ask(self, store: StoreId) -> int | None:
        asked_us = self._monotonic_us()
        try:
            answer = await self._requests.ask(store, TIME, None, bounds.CLOCK_ASK_TIMEOUT_S)
        except LogServiceError:
            return None
        heard_us = self._monotonic_us()
        if heard_us - asked_us > bounds.CLOCK_ASK_TIMEOUT_S * 1_000_000:
            return None
        return answer.wall_us - (asked_us + heard_us) // 2

    async def _on_asked(self, peer: PeerIdentity, asked: None) -> Time:
        return Time(self._clock.wall_us())

    def _read_us(self) -> int:
        return self._clock.wall_us() - self._monotonic_us()

    def _monotonic_us(self) -> int:
        return int(self._clock.monotonic() * 1_000_000)
