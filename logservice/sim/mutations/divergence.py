"""Seeded bugs of the comparison of replicas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from logservice.ids import ReplicaId
from logservice.membership import Membership
from logservice.nodehost.integrity import comparison, comparison_answers
from logservice.nodehost.integrity.divergence import Judgement, Verdict
from logservice.sim.mutations.registry import mutation, wrap


@mutation
def _divergence_is_not_compared() -> None:
    def mutate(_: Any) -> Any:
        async def compare(self: Any, shard: Any, low: Any) -> None:
            return None

        return compare

    wrap(comparison.Comparer, "_compare", mutate)


@mutation
def _minority_of_the_replicas_is_right() -> None:
    def mutate(original: Any) -> Any:
        def judge(members: Membership, digests: Mapping[ReplicaId, bytes]) -> Judgement:
            found: Judgement = original(members, digests)
            if found.verdict is not Verdict.WRONG:
                return found
            wrong = tuple(sorted(set(digests) - set(found.wrong)))
            return Judgement(Verdict.WRONG, wrong, majority=True)

        return judge

    wrap(comparison, "judge", mutate)
    wrap(comparison_answers, "judge", mutate)


@mutation
def _wrong_replica_goes_on() -> None:
    def mutate(_: Any) -> Any:
        def halt(self: Any, *arguments: Any, **named: Any) -> None:
            self.totals["halted"] += 1

        return halt

    wrap(comparison_answers.ComparisonAnswers, "halt", mutate)
