"""Quotas of one identity: what is under way, and token buckets."""

from __future__ import annotations

import pytest
from logservice_wire.errors import Busy

from logservice import bounds
from logservice.server.edge.quota import Quota, QuotaLimits


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_calls_under_way() -> None:
    """Reaches IDENTITY_RPCS_MAX and IDENTITY_STREAMS_MAX, made small."""
    quota = Quota(QuotaLimits(rpcs_max=2, streams_max=1))
    quota.begin_rpc()
    quota.begin_rpc()
    with pytest.raises(Busy):
        quota.begin_rpc()
    quota.end_rpc()
    quota.begin_rpc()
    quota.begin_stream()
    with pytest.raises(Busy):
        quota.begin_stream()
    assert quota.busy
    for _ in range(2):
        quota.end_rpc()
    quota.end_stream()
    assert not quota.busy


def test_requests_per_second() -> None:
    clock = Clock()
    quota = Quota(QuotaLimits(requests_per_s=10), clock)
    for _ in range(10):
        quota.begin_rpc()
        quota.end_rpc()
    with pytest.raises(Busy) as caught:
        quota.begin_rpc()
    assert 0 < caught.value.number("retry_after_ms") <= 100
    assert not quota.busy
    clock.now += caught.value.number("retry_after_ms") / 1000
    quota.begin_rpc()
    clock.now += 1000
    for _ in range(10):
        quota.begin_rpc()
    with pytest.raises(Busy):
        quota.begin_rpc()


def test_bytes_may_overdraw_and_are_waited_for() -> None:
    clock = Clock()
    quota = Quota(QuotaLimits(bytes_per_s=1000), clock)
    quota.begin_rpc()
    quota.take_bytes(3000)
    with pytest.raises(Busy) as caught:
        quota.begin_rpc()
    assert 1900 <= caught.value.number("retry_after_ms") <= 2100
    clock.now += 2.1
    quota.begin_rpc()
    # A stream is slowed down instead.
    assert quota.take_message(10) == 0
    assert quota.take_message(5000) > 4


def test_no_limit_by_default() -> None:
    quota = Quota(QuotaLimits())
    assert not quota.counts_bytes
    for _ in range(1000):
        quota.begin_rpc()
        assert quota.take_message(10**9) == 0


def test_a_request_larger_than_the_bucket_passes_and_is_owed() -> None:
    """However low the rate is; the least that a verb sets is QUOTA_BYTES_PER_S_MIN."""
    clock = Clock()
    quota = Quota(QuotaLimits(bytes_per_s=bounds.QUOTA_BYTES_PER_S_MIN), clock)
    quota.begin_rpc()
    quota.take_bytes(bounds.REQUEST_BYTES_MAX)
    quota.end_rpc()
    with pytest.raises(Busy) as caught:
        quota.begin_rpc()
    assert 0 < caught.value.number("retry_after_ms") < 150_000
    clock.now += bounds.REQUEST_BYTES_MAX / bounds.QUOTA_BYTES_PER_S_MIN
    quota.begin_rpc()


def test_limits_change_while_it_is_used() -> None:
    """What is under way goes on; what is owed at a rate that is gone is not owed any more."""
    clock = Clock()
    quota = Quota(QuotaLimits(rpcs_max=3, streams_max=2, bytes_per_s=100), clock)
    for _ in range(3):
        quota.begin_rpc()
    for _ in range(2):
        quota.begin_stream()
    quota.change(QuotaLimits(rpcs_max=1, streams_max=1))
    assert (quota.rpcs, quota.streams) == (3, 2)
    quota.end_rpc()
    quota.end_rpc()
    with pytest.raises(Busy, match="more than 1 calls"):
        quota.begin_rpc()
    quota.end_stream()
    with pytest.raises(Busy, match="more than 1 streams"):
        quota.begin_stream()
    quota.end_rpc()
    quota.begin_rpc()
    assert not quota.paced
    quota.change(QuotaLimits(bytes_per_s=100))
    assert quota.paced
    quota.take_bytes(1000)
    assert quota.wait_s() > 8
    quota.change(QuotaLimits(bytes_per_s=100))
    assert quota.wait_s() > 8, "the same limits are no change"
    quota.change(QuotaLimits(bytes_per_s=200))
    assert quota.wait_s() == 0
    quota.take_bytes(1000)
    quota.change(QuotaLimits())
    assert (quota.wait_s(), quota.paced) == (0, False)


def test_what_is_owed_has_a_bound() -> None:
    """Reaches QUOTA_DEBT_S_MAX. As many calls as an identity may have are under way when the lowest
    rate is set, each with the largest answer; they pay when they are over.
    """
    clock = Clock()
    quota = Quota(QuotaLimits(), clock)
    for _ in range(bounds.IDENTITY_RPCS_MAX):
        quota.begin_rpc()
    quota.change(QuotaLimits(bytes_per_s=bounds.QUOTA_BYTES_PER_S_MIN))
    for _ in range(bounds.IDENTITY_RPCS_MAX):
        quota.take_bytes(bounds.GRPC_MESSAGE_BYTES_MAX)
        quota.end_rpc()
    assert 149 < quota.wait_s() <= bounds.QUOTA_DEBT_S_MAX + 0.001
    clock.now += bounds.QUOTA_DEBT_S_MAX + 0.001
    quota.begin_rpc()


def test_the_largest_request_is_owed_whole_at_the_lowest_rate() -> None:
    quota = Quota(QuotaLimits(bytes_per_s=bounds.QUOTA_BYTES_PER_S_MIN), Clock())
    quota.take_bytes(bounds.REQUEST_BYTES_MAX)
    owed = bounds.REQUEST_BYTES_MAX / bounds.QUOTA_BYTES_PER_S_MIN - 1
    assert owed < quota.wait_s() < owed + 0.001 < bounds.QUOTA_DEBT_S_MAX
