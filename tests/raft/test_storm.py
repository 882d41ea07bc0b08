"""Random lives of clusters, checked at every action; see `storm` and `cluster`.

`python -m tests.raft.test_storm FIRST COUNT` runs more of them and prints the seed that fails.
"""

from __future__ import annotations

import sys
from collections import Counter

import pytest

from tests.raft.storm import Storm

STEPS = 5000


def live(seed: int) -> Counter[str]:
    """One life with the settings that follow from its seed."""
    storm = Storm(
        seed,
        changes=seed % 2 == 1,
        pre_vote=seed % 3 != 0 or seed % 2 == 1,  # replicas that left need it: see `departing`
        check_quorum=seed % 5 != 0,
        lease_read=seed % 5 == 1,
    )
    storm.run(STEPS)
    return storm.counts


@pytest.mark.parametrize("seed", range(40))
def test_safety_and_recovery(seed: int) -> None:
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
