"""StreamOffset: how far a streaming query is, in the JSON that Spark keeps in its checkpoint.

Theory of operation. ``{"1": 425183}``: of shard 1 everything below LSN 425183 is in earlier
micro-batches. Spark compares offsets as text, so one position has one text: shards in the order of
their numbers, then `lineages`, and a lineage only where there is something to say.

A log that was continued by force, restored or branched is another history under LSNs that may be
the same (docs/operations/lost-quorum.md). So an offset says which one its LSNs are of:
``{"1": 425183, "lineages": {"1": "2-9f…"}}``, number and id. A shard that is not in `lineages` has
the history that every log begins with, which has no number. So an offset of a log that was never
continued is its LSN and nothing else, and its query notices a later continuation all the same.

Nothing else is read: an offset with a part that is not known here was written by a newer release,
and to leave that part out could mean to read the wrong records.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from logservice_client.lineage import LINEAGE_BYTES, Lineage

from pyspark_logservice.checks import NUMBER_MAX, number

LINEAGES: Final = "lineages"

_LINEAGE: Final = re.compile(rf"([1-9][0-9]{{0,18}})-([0-9a-f]{{{2 * LINEAGE_BYTES}}})")


class OffsetError(ValueError):
    """What a checkpoint has as an offset is none of this source's."""


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The next LSN of every shard, and the lineage of those that were continued. A shard without
    one has the first: `lineage_of`.
    """

    lsns: Mapping[int, int]
    lineages: Mapping[int, Lineage] = field(default_factory=dict)

    def lineage_of(self, shard: int) -> Lineage:
        """Which history of the log its LSN is of; the fork LSN is not remembered."""
        return self.lineages.get(shard, Lineage())

    def to_json(self) -> dict[str, Any]:
        """The object that Spark writes down, in its one order."""
        found: dict[str, Any] = {str(shard): self.lsns[shard] for shard in sorted(self.lsns)}
        named = {
            str(shard): f"{self.lineages[shard].number}-{self.lineages[shard].id.hex()}"
            for shard in sorted(self.lineages)
            if self.lineages[shard].number and shard in self.lsns
        }
        if named:
            found[LINEAGES] = named
        return found

    @classmethod
    def of_json(cls, given: Mapping[str, Any]) -> StreamOffset:
        """Raises OffsetError."""
        lsns: dict[int, int] = {}
        for key, value in given.items():
            if key == LINEAGES:
                continue
            shard = number(key)
            if not shard or type(value) is not int or not 1 <= value <= NUMBER_MAX:
                raise _unreadable(given)
            lsns[shard] = value
        named = given.get(LINEAGES, {})
        if not isinstance(named, Mapping):
            raise _unreadable(given)
        lineages = {}
        for key, text in named.items():
            found = _LINEAGE.fullmatch(text) if isinstance(text, str) else None
            shard = number(key)
            if found is None or shard not in lsns:
                raise _unreadable(given)
            lineages[shard] = Lineage(int(found[1]), bytes.fromhex(found[2]))
        return cls(lsns, lineages)


def _unreadable(given: Mapping[str, Any]) -> OffsetError:
    return OffsetError(
        f"the checkpoint has an offset that this release cannot read: {json.dumps(given)}"
    )
