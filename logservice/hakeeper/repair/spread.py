"""Spread: how far apart the voters of a shard are.

Theory of operation. A zone is what fails as a whole. A shard survives the loss of a zone exactly if
no zone has a majority of its voters. The zone rule of the shard's policy says how much that is
worth:

    none          zones do not matter
    best-effort   each replica goes to the zone that has the fewest of the shard's voters, among the
                  zones that can take it. With three zones or more, no zone gets a majority then
    hard          as best-effort, but no zone ever gets a majority, even if the replica has to wait
                  for a store; a store without a zone gets nothing, because nobody knows where it is

A shard of one replica cannot survive the loss of a zone; `hard` asks of it only that the zone is
known. Without a zone label anywhere, all stores are in one zone, and best effort chooses as no rule
does.

INV-HK-ZONE: no choice of a store gives a zone a majority of the voters of a shard whose rule is
hard.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from logservice.hakeeper.commands.policy import ZoneRule
from logservice.hakeeper.stores.zones import NO_ZONE


def most_in_a_zone(rule: ZoneRule, voters: int) -> int:
    """How many of so many voters a zone may have."""
    return max(1, (voters - 1) // 2) if rule is ZoneRule.HARD else voters


class Spread:
    """The zones of one shard's voters, which change as voters come and go."""

    def __init__(self, rule: ZoneRule, wanted: int, zones: Iterable[str]) -> None:
        """`wanted`: how many voters the shard should have. `zones`: one for each that it has."""
        self._rule = rule
        self._most = most_in_a_zone(rule, wanted)
        self._voters = Counter(zones)

    def takes(self, zone: str) -> bool:
        """Whether the rule lets another voter go to the zone."""
        if self._rule is not ZoneRule.HARD:
            return True
        return zone != NO_ZONE and self._voters[zone] < self._most

    def crowd(self, zone: str) -> int:
        """How many voters are in the zone, as far as that matters; the fewer the better."""
        return 0 if self._rule is ZoneRule.NONE else self._voters[zone]

    def take(self, zone: str) -> None:
        """A voter comes to the zone."""
        self._voters[zone] += 1

    def as_good(self, source: str, target: str) -> bool:
        """Whether a voter that left `source`, and is not counted here, may go to `target` and leave
        the voters no less far apart than it found them.
        """
        if source == target:
            return True
        return self.takes(target) and self.crowd(target) <= self.crowd(source)

    def better(self, source: str, target: str) -> bool:
        """Whether it would leave them further apart. The sum of the squares of the zones' voters
        falls then, so that improvements end.
        """
        return self.takes(target) and self.crowd(target) < self.crowd(source)

    def uneven(self, zones: Iterable[str]) -> bool:
        """Whether one of the voters that are counted here could leave them further apart if it
        moved to one of `zones`.
        """
        most = max(self._voters.values(), default=0)
        if most < 2 or self._rule is ZoneRule.NONE:
            return False  # most shards are so, and a look asks many of them
        return most > min((self._voters[zone] for zone in zones), default=most) + 1

    def breach(self) -> str:
        """What breaks the rule, for people; empty when nothing does."""
        for zone, voters in sorted(self._voters.items()):
            if self._rule is ZoneRule.HARD and voters > self._most:
                return f"zone {zone or 'unknown'} has {voters} of its voters, against its rule"
        return ""
