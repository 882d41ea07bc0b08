"""Quotas of one identity: what is under way, and token buckets."""

from __future__ import annotations

import pytest
from logservice_wire.errors import Busy

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
