"""The bytes that log storage writes beyond those asked for are bounded, whoever truncates when."""

from __future__ import annotations

import pytest

from bench.storage.amplification import (
    PATTERNS,
    SHARDS,
    Pattern,
    delete,
    deletions,
    measure,
    table,
)
from logservice.bounds import LOGDB_REWRITE_FOR_REMOVED, LOGDB_REWRITE_OLD_LIVE_RATIO

GROUPS = 400
ROWS_MAX = 0.1
"""Bytes of the derived index for each byte of entries of 4 KiB."""


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_extra_writes_are_bounded(pattern: Pattern) -> None:
    stats = measure(pattern, GROUPS)
    copies = LOGDB_REWRITE_OLD_LIVE_RATIO / (1 - LOGDB_REWRITE_OLD_LIVE_RATIO)
    assert stats.segments_retired > 10, "it is the steady state"
    assert stats.bytes_rewritten <= copies * stats.bytes_written
    assert stats.index_bytes_written <= ROWS_MAX * stats.bytes_written
    assert 1.0 < stats.write_amplification <= 1 + copies + ROWS_MAX


def test_nothing_is_copied_when_all_truncate_alike() -> None:
    assert measure(PATTERNS[0], GROUPS).bytes_rewritten == 0


def test_deleting_half_of_the_logs_gives_their_space_back() -> None:
    found = delete(SHARDS // 2, 300)
    assert found.after < 0.7 * found.before
    assert 0 < found.copied <= LOGDB_REWRITE_FOR_REMOVED * (found.before - found.after)
    assert deletions(5).row_count == 4


def test_the_table_has_a_row_per_pattern() -> None:
    assert table(20).row_count == len(PATTERNS)
