"""Random lives of clusters, checked at every action; see `storm` and `cluster`.

`python -m tests.raft.test_storm FIRST COUNT` runs more of them and prints the seed that fails.
"""

from __future__ import annotations

import sys
from collections import Counter

import pytest

from tests.raft.storm import Storm

TICKS = 200


def live(seed: int) -> Counter[str]:
    """Run one life; return what happened in it."""
    storm = Storm(seed)
    storm.run(TICKS)
    return storm.counts


@pytest.mark.parametrize("seed", range(60))
def test_a_cluster_is_safe_in_a_storm_and_recovers(seed: int) -> None:
    live(seed)


def test_a_storm_does_what_it_says() -> None:
    total: Counter[str] = Counter()
    for seed in range(1000, 1006):
        total += live(seed)
    for name in ("applied", "lost", "compacted", "crashed", "reads", "changes", "proposed"):
        assert total[name] > 0, f"{name} never happened: {total}"


if __name__ == "__main__":
    first, count = int(sys.argv[1]), int(sys.argv[2])
    summary: Counter[str] = Counter()
    for number in range(first, first + count):
        try:
            summary += live(number)
        except BaseException:
            print(f"seed {number}")
            raise
    print(dict(summary))
