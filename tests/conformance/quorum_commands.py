"""`committed` and `vote`: quorums of majorities and pairs of them."""

from __future__ import annotations

from logservice.ids import ReplicaId
from logservice.raft.tracker.tracker import (
    INFINITE_INDEX,
    VoteResult,
    committed_index,
    joint_vote,
    majority_index,
    majority_vote,
)
from tests.conformance.datadriven import Directive

COMMANDS = frozenset({"committed", "vote"})

_RESULTS = {
    VoteResult.PENDING: "VotePending",
    VoteResult.LOST: "VoteLost",
    VoteResult.WON: "VoteWon",
}


class QuorumRunner:
    """The commands have no state: every directive names its configuration."""

    def run(self, directive: Directive) -> str:
        voters = [ReplicaId(int(value)) for value in directive.values("cfg")]
        joint = any(argument.key == "cfgj" for argument in directive.arguments)
        listed = directive.values("cfgj")
        outgoing = [] if listed == ("zero",) else [ReplicaId(int(value)) for value in listed]
        everyone = list(dict.fromkeys(voters + outgoing))
        given = directive.values("votes" if directive.command == "vote" else "idx")
        if len(given) != len(everyone):
            ids = " ".join(map(str, sorted(everyone)))
            return f"error: mismatched input (explicit or _) for voters [{ids}]: {list(given)}"
        known = {who: value for who, value in zip(everyone, given, strict=True) if value != "_"}
        if directive.command == "vote":
            votes = {who: value == "y" for who, value in known.items()}
            return self._vote(voters, outgoing, votes, joint=joint)
        return self._committed(voters, outgoing, {who: int(value) for who, value in known.items()})

    def _vote(
        self,
        voters: list[ReplicaId],
        outgoing: list[ReplicaId],
        votes: dict[ReplicaId, bool],
        *,
        joint: bool,
    ) -> str:
        if not joint:
            return _RESULTS[majority_vote(set(voters), votes)]
        result = joint_vote(set(voters), set(outgoing), votes)
        if joint_vote(set(outgoing), set(voters), votes) is not result:
            return "the halves are not interchangeable"
        return _RESULTS[result]

    def _committed(
        self, voters: list[ReplicaId], outgoing: list[ReplicaId], known: dict[ReplicaId, int]
    ) -> str:
        def match_of(who: ReplicaId) -> int:
            return known.get(who, 0)

        index = committed_index(set(voters), set(outgoing), match_of)
        others = {
            committed_index(set(outgoing), set(voters), match_of),
            min(
                majority_index([match_of(who) for who in set(half)]) for half in (voters, outgoing)
            ),
        }
        if others != {index}:
            return f"{others} <-- via alternative computation"
        shown = "∞" if index == INFINITE_INDEX else str(index)
        return _describe(sorted({*voters, *outgoing}), known) + shown


def _describe(voters: list[ReplicaId], known: dict[ReplicaId, int]) -> str:
    """A picture of each voter's index: its bar is as long as the number of voters it has passed."""
    if not voters:
        return "<empty majority quorum>"
    count = len(voters)
    order = sorted(voters, key=lambda who: (known.get(who, 0), who))
    bars = dict.fromkeys(voters, 0)
    for position in range(1, count):
        before, who = order[position - 1], order[position]
        passed = known.get(before, 0) < known.get(who, 0)
        bars[who] = position if passed else bars[before]
    lines = [" " * count + "    idx"]
    for who in voters:
        bar = bars[who]
        mark = "x" * bar + ">" + " " * (count - bar) if who in known else "?" + " " * count
        lines.append(f"{mark} {known.get(who, 0):5d}    (id={who})")
    return "\n".join(lines) + "\n"
