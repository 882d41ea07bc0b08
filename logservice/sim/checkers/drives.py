"""Drives: a bounded pass of HAKeeper forgets no operator, and drives shard 0's before all others.

INV-HK-DRIVES, seen from outside, entry by entry. With n operators under way when one was driven,
and t = HAKEEPER_DRIVES_IN_TURN_MIN, at most (n - 1) // t passes pass it over before the next one
that drives it. Proof: whoever is before it in turn was under way then, because what begins later
stands behind it. Those are n - 1 at most, each pass takes t of them away at least, and a pass that
finds fewer than t of them drives it. Nor does it wait for a pass for long:
HAKEEPER_OPERATOR_CHECK_TICKS after it was driven it is overdue, and then every tick has a pass.
So at most HAKEEPER_OPERATOR_CHECK_TICKS - 1 + (n - 1) // t ticks end without it.

An operator of shard 0 is passed over only by a pass whose first places (all but t) have others of
shard 0.

Which operators a pass has driven is read off the state: their tick is that of the pass, or they
are gone. A product that wrote the tick and drove nothing would come to no end, which `world` waits
for (`_repairs_end`).
"""

from __future__ import annotations

from dataclasses import dataclass

from logservice import bounds
from logservice.entry import Entry
from logservice.hakeeper.rsm import HAKeeperRsm
from logservice.hakeeper.state import State
from logservice.ids import HAKEEPER_SHARD, ShardId
from logservice.sim.checkers.checker import Checker, Violate
from logservice.sim.interfaces import ObservedStore
from logservice.sim.oracle import Oracle
from logservice.state_machine import StateMachine

_BOUNDED = 2
"""From this cluster version on a pass drives a bounded number of operators."""


@dataclass(slots=True)
class _Known:
    """An operator since it was driven: when that was, of how many, and how many passes since."""

    shard: ShardId
    tick: int
    among: int
    passes: int = 0

    @property
    def most(self) -> int:
        """How many passes may pass it over."""
        return (self.among - 1) // bounds.HAKEEPER_DRIVES_IN_TURN_MIN


class Drives(Checker):
    """Each entry of shard 0 is looked at once, where it is applied first: `EqualSnapshots` and
    `StateMachineSafety` see to the other replicas.
    """

    name = "drives"

    def __init__(self, oracle: Oracle, violate: Violate) -> None:
        super().__init__(oracle, violate)
        self.passed_over = 0
        """How often a pass left an operator out."""
        self._index = 0
        self._tick = 0
        self._bounded = False
        self._known: dict[int, _Known] = {}

    def applied(
        self, store: ObservedStore, shard: ShardId, entry: Entry, machine: StateMachine
    ) -> None:
        if entry.index <= self._index or not isinstance(machine, HAKeeperRsm):
            return
        state = machine.state
        follows = self._bounded and entry.index == self._index + 1
        ticked = state.tick != self._tick
        self._index, self._tick = entry.index, state.tick
        self._bounded = state.cluster_version >= _BOUNDED
        if not follows:
            self._known = {}
        elif ticked:
            self._passed(state)
        self._learn(state)

    def _passed(self, state: State) -> None:
        """A tick was applied, perhaps with a pass."""
        operators = state.operators
        driven, left = [], []
        for number, known in self._known.items():
            operator = operators.get(number)
            if operator is not None and operator.driven_tick != state.tick:
                left.append(number)
            elif operator is not None or known.shard in state.shards:
                driven.append(number)
        if any(number in operators for number in driven):
            self._ran(driven, left)
        begun = [one.id for one in operators.values() if one.id not in self._known]
        drove = [one for one in begun if not operators[one].heard]
        for numbers in (driven, drove):
            if len(numbers) > bounds.HAKEEPER_DRIVES_PER_PASS_MAX:
                self.wrong(f"tick {state.tick}: a pass drove the operators {numbers}")
        for number in driven:
            self._known.pop(number)
        for number in left:
            known = self._known[number]
            ticks = bounds.HAKEEPER_OPERATOR_CHECK_TICKS - 1 + known.most
            if state.tick - known.tick > ticks:
                self.wrong(
                    f"tick {state.tick}: operator {number} of shard {known.shard}, one of "
                    f"{known.among}, was driven at tick {known.tick}"
                )

    def _ran(self, driven: list[int], left: list[int]) -> None:
        self.passed_over += len(left)
        first = bounds.HAKEEPER_DRIVES_PER_PASS_MAX - bounds.HAKEEPER_DRIVES_IN_TURN_MIN
        waits = [one for one in left if self._known[one].shard == HAKEEPER_SHARD]
        ahead = sum(1 for one in driven if self._known[one].shard == HAKEEPER_SHARD)
        if waits and ahead < first:
            self.wrong(f"operators {waits} of shard 0 wait, and a pass drove {driven}")
        for number in left:
            known = self._known[number]
            known.passes += 1
            if known.passes > known.most:
                self.wrong(
                    f"{known.passes} passes passed operator {number} of shard {known.shard} over, "
                    f"one of {known.among}"
                )

    def _learn(self, state: State) -> None:
        """Who is under way. What is new, or was driven just now, begins to wait."""
        known, count = self._known, len(state.operators)
        self._known = {
            number: known.get(number) or _Known(one.shard, state.tick, count)
            for number, one in state.operators.items()
        }
