"""What the writers were told, and what the logs must hold because of it.

A record that was acked is in the log once, at the LSN of its ack. A record whose call ended
otherwise is in the log once or not at all. Nothing else is there.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

SHOWN_MAX = 5


@dataclass(slots=True)
class Ledger:
    """Acks and errors of all writers, by shard."""

    acked: dict[int, dict[str, int]] = field(default_factory=dict)
    """Shard -> record -> LSN."""
    ack_times: dict[int, list[float]] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)
    """Calls that did not end with an ack, by the error's reason."""

    def note(self, writer: str, said: Mapping[str, object]) -> None:
        """One line of a writer."""
        shard, number, count = (_number(said[name]) for name in ("shard", "number", "count"))
        if "error" in said:
            self.errors[str(said["error"])] += 1
            return
        lsn = _number(said["lsn"])
        acked = self.acked.setdefault(shard, {})
        for place in range(count):
            acked[f"{writer}/{number + place}"] = lsn + place
        time_s = said["time_s"]
        assert isinstance(time_s, float)
        self.ack_times.setdefault(shard, []).append(time_s)

    def count(self) -> int:
        """Acked records."""
        return sum(map(len, self.acked.values()))

    def longest_gap_s(self, begin_s: float, end_s: float) -> float:
        """The longest time in which some shard acked nothing, within that span."""
        gaps = []
        for times in self.ack_times.values():
            inside = [begin_s, *sorted(t for t in times if begin_s < t < end_s), end_s]
            gaps.append(max(after - before for before, after in itertools.pairwise(inside)))
        return max(gaps, default=end_s - begin_s)

    def problems(self, shard: int, log: Sequence[tuple[int, str]]) -> Iterator[str]:
        """What is wrong with a log that was read: LSNs and records, in its order."""
        acked = self.acked.get(shard, {})
        places: dict[str, list[int]] = {}
        for lsn, record in log:
            places.setdefault(record, []).append(lsn)
        lost = [record for record in acked if record not in places]
        doubled = [record for record, lsns in places.items() if len(lsns) > 1]
        moved = [record for record, lsn in acked.items() if places.get(record, [lsn])[0] != lsn]
        for what, records in (("lost", lost), ("doubled", doubled), ("moved", moved)):
            if records:
                shown = ", ".join(records[:SHOWN_MAX])
                yield f"shard {shard}: {len(records)} records {what}: {shown}"


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value
