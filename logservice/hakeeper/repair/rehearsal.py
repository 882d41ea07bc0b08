"""Rehearsal: what balancing would do, made on a copy of the state.

Theory of operation. The moves that `balance` and `leadership` name one after the other are made at
once on the copy, as if each had succeeded, until there is none left or the list is full. So a dry
run lists what the verb does, found by the same code. Reality differs where stores do: what is
written, lost or led elsewhere meanwhile changes what comes later.

On the copy a replica keeps its id when it moves, and a leader goes on to lead. Only what changes is
copied: the tables and their rows. So the state may change while the list is made, in slices.
"""

from __future__ import annotations

import copy
from collections.abc import Generator, Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from logservice import bounds
from logservice.hakeeper.repair.balance import Balance, Move
from logservice.hakeeper.repair.leadership import HandOver, Leadership
from logservice.hakeeper.repair.placement import Placement
from logservice.hakeeper.repair.rebalance import waits_for
from logservice.hakeeper.state import State
from logservice.hakeeper.stores.holdings import give, touch
from logservice.membership import Member
from logservice.sliced import Sliced


@dataclass(frozen=True, slots=True)
class BalancePlan:
    """`waits`: why no replica moves now; none is listed then. `more`: whether the list was full
    before the end was reached. `..._wished`: whether a person began it and it goes on.
    """

    moves: tuple[Move, ...]
    hand_overs: tuple[HandOver, ...]
    more: bool = False
    waits: str = ""
    replicas_wished: bool = False
    leaders_wished: bool = False


def rehearse(state: State, *, replicas: bool, leaders: bool) -> BalancePlan:
    """The moves for zones, then those for loads if `replicas`, then the hand-overs if `leaders`."""
    return Sliced(in_slices(state, replicas=replicas, leaders=leaders)).at_a_stretch()


def in_slices(state: State, *, replicas: bool, leaders: bool) -> Generator[None, None, BalancePlan]:
    """The answer of `rehearse`, at the end, as of now: the state may change meanwhile."""
    waits = waits_for(state)
    wished = bool(state.balance.replicas_wished_tick), bool(state.balance.leaders_wished_tick)
    stage = Stage(state)
    yield
    if not waits:
        yield from stage.moves(replicas=replicas)
    if leaders and not stage.more:
        yield from stage.hand_overs()
    return BalancePlan(tuple(stage.moved), tuple(stage.handed_over), stage.more, waits, *wished)


class Stage:
    """A copy of the state on which everything succeeds at once. `state`: the copy. `moved`,
    `handed_over`: what was made. `more`: whether moves were left out.
    """

    def __init__(self, state: State) -> None:
        self.state = copy.copy(state)
        self.state.shards = {number: copy.copy(shard) for number, shard in state.shards.items()}
        self.state.operators = {number: copy.copy(one) for number, one in state.operators.items()}
        self.state.stores = {}
        for name, store in state.stores.items():
            self.state.stores[name] = copied = copy.copy(store)
            copied.replicas = dict(store.replicas)
        give(state, self.state)
        self.moved: list[Move] = []
        self.handed_over: list[HandOver] = []
        self.more = False
        self._room = bounds.HAKEEPER_PLAN_MOVES_MAX
        self._placement = Placement(self.state)
        self._balance = Balance(self.state, self._placement)

    def moves(self, *, replicas: bool) -> Iterator[None]:
        """Make all moves, in slices."""
        for move in self._asked_for(replicas=replicas):
            if move is not None:
                if not self._takes_another():
                    return
                self.move(move)
                self.moved.append(move)
            yield

    def _takes_another(self) -> bool:
        self.more = self._room == 0
        self._room -= 1
        return not self.more

    def _asked_for(self, *, replicas: bool) -> Iterator[Move | None]:
        """The moves, each of which is made before the next is asked for, and None between two
        slices. A move for the load may open the way for one for a zone, so both are asked for until
        neither is left.
        """
        found = True
        while found:
            found = False
            for looked, number in enumerate(sorted(self.state.shards), 1):
                while (move := self._balance.zone_move(self.state.shards[number])) is not None:
                    found = True
                    yield move
                if looked % bounds.HAKEEPER_BALANCE_SHARDS == 0:
                    yield None
            while replicas and (move := self._balance.load_move()) is not None:
                found = True
                yield move

    def hand_overs(self) -> Iterator[None]:
        """Make all hand-overs, in slices."""
        found = True
        while found:
            found = False
            leadership = Leadership(self.state, rests=False)
            while (one := leadership.next()) is not None:
                if not self._takes_another():
                    return
                leadership.begin(one)
                self.hand_over(one)
                self.handed_over.append(one)
                found = True
                yield

    def move(self, move: Move) -> None:
        stores = self.state.stores
        shard = self.state.shards[move.shard]
        before = shard.members
        if move.learner is None:
            incarnation = self._placement.directory(stores[move.target])
        else:
            incarnation = move.learner.incarnation
            gone = {move.learner.replica_id}
            before = replace(
                before,
                members=tuple(one for one in before.members if one.replica_id not in gone),
                learners=tuple(one for one in before.learners if one not in gone),
            )
        members = [
            Member(move.replica, move.target, incarnation)
            if one.replica_id == move.replica
            else one
            for one in before.members
        ]
        shard.membership = replace(before, members=tuple(members)).encode()
        report = stores[move.source].replicas.pop(move.shard)
        stores[move.target].replicas[move.shard] = replace(
            report, incarnation=incarnation, membership=shard.membership
        )
        touch(self.state, move.shard, (move.source, move.target))
        if move.learner is None:
            self._placement.moved(move.source, move.target)
        else:
            self._placement.left(move.source)

    def hand_over(self, made: HandOver) -> None:
        source = self.state.stores[made.source].replicas
        target = self.state.stores[made.target].replicas
        before = source[made.shard]
        others = [replica for replica, _ in before.match if replica != made.replica]
        source[made.shard] = replace(before, leads=False, match=(), recently_active=())
        target[made.shard] = replace(
            target[made.shard],
            leads=True,
            match=tuple((one, before.committed_index) for one in (*others, before.replica)),
            recently_active=(*others, before.replica),
            committed_index=before.committed_index,
        )
        touch(self.state, made.shard, (made.source, made.target))
