"""The parts of a store's memory add up to its budget, and a store says so before it starts."""

from __future__ import annotations

import pytest

from logservice import bounds, config
from logservice.config import ConfigError
from logservice.memory_budget import PARTS, excess, limits_of
from tests.test_config import MINIMAL

_MIB = 1024 * 1024


def test_the_parts_add_up_to_the_budget() -> None:
    """INV-MEM-2: every bound of what others make a store keep, each in one part."""
    everything = (
        4 * bounds.ANSWER_BYTES_MAX
        + bounds.UNDELIVERED_BYTES_MAX
        + bounds.CALL_LINE_BYTES_MAX
        + bounds.STORE_PROPOSAL_BYTES_MAX
        + bounds.UNWRITTEN_BYTES_MAX
        + bounds.PEER_QUEUES_BYTES_MAX
        + bounds.PEER_REQUESTS_BYTES_MAX
        + bounds.PEER_PARTIAL_BYTES_MAX
        + bounds.ADMIN_ANSWER_BYTES_MAX
    )
    caches = bounds.LOGDB_ENTRY_CACHE_BYTES + bounds.LOGDB_COLUMN_CACHE_BYTES
    for directories in (1, 3):
        limits = limits_of({}, directories)
        assert sum(limits.values()) == everything + directories * caches
        assert set(limits) == {part.name for part in PARTS}
    assert sum(config.memory_limits(config.parse(MINIMAL)).values()) == everything + caches
    assert everything == 6688 * _MIB


def test_what_one_log_or_store_may_have_fits_into_its_part() -> None:
    """The largest thing of each kind is taken beside others, not only alone."""
    assert 2 * bounds.PENDING_PROPOSAL_BYTES_MAX <= bounds.STORE_PROPOSAL_BYTES_MAX
    assert 2 * bounds.PEER_SNAPSHOT_BYTES_MAX < bounds.UNWRITTEN_BYTES_MAX
    assert 2 * bounds.PEER_SNAPSHOT_BYTES_MAX < bounds.PEER_QUEUES_BYTES_MAX
    assert 2 * bounds.PEER_REQUEST_BYTES_MAX <= bounds.PEER_REQUESTS_BYTES_MAX


def refused(limits: str, directories: str = '["data"]') -> ConfigError:
    text = MINIMAL.replace('["data"]', directories) + f"[limits]\n{limits}\n"
    with pytest.raises(ConfigError) as caught:
        config.parse(text)
    return caught.value


def test_parts_that_exceed_the_budget_are_refused_by_name() -> None:
    """INV-MEM-2, at its edge; each data directory counts."""
    total = sum(limits_of({}, 1).values())
    config.parse(MINIMAL + f"[limits]\nmemory_bytes_max = {total}\n")
    error = refused(f"memory_bytes_max = {total - 1}")
    assert error.metadata["field"] == "limits.memory_bytes_max"
    for part in PARTS:
        if part.key:
            assert f"limits.{part.key}" in error.message
    assert f"expected >= {total}" in error.message
    assert "answer_bytes_max (4 times)" in error.message
    refused(f"memory_bytes_max = {total}", '["data", "more"]')
    refused(f"memory_bytes_max = {total}\nunwritten_bytes_max = {bounds.UNWRITTEN_BYTES_MAX + 1}")


def test_smaller_parts_fit_into_a_smaller_budget() -> None:
    small = {
        "answer_bytes_max": 64 * _MIB,
        "undelivered_bytes_max": 128 * _MIB,
        "proposal_bytes_max": 128 * _MIB,
        "unwritten_bytes_max": 128 * _MIB,
        "peer_queue_bytes_max": 128 * _MIB,
        "peer_request_bytes_max": 128 * _MIB,
        "memory_bytes_max": 2048 * _MIB,
    }
    parsed = config.parse(
        MINIMAL + "[limits]\n" + "".join(f"{key} = {size}\n" for key, size in small.items())
    )
    assert sum(config.memory_limits(parsed).values()) <= 2048 * _MIB


def test_a_configuration_that_states_no_budget_starts_as_before() -> None:
    parsed = config.parse(MINIMAL + f"[limits]\nanswer_bytes_max = {1 << 40}\n")
    assert config.memory_limits(parsed)["answers"] == 4 << 40


@pytest.mark.parametrize("part", [part for part in PARTS if part.key], ids=lambda part: part.name)
def test_each_key_changes_its_part_and_no_other(part: object) -> None:
    assert isinstance(part, type(PARTS[0]))
    usual, doubled = limits_of({}, 1), limits_of({part.key: 2 * part.limit_bytes}, 1)
    assert {name for name in usual if usual[name] != doubled[name]} == {part.name}
    assert doubled[part.name] == 2 * usual[part.name]


def test_what_fits_is_no_excess() -> None:
    total = sum(limits_of({}, 2).values())
    assert excess(total, {}, 2) == ""
    assert excess(total - 1, {}, 2)
