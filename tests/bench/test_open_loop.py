"""An open loop counts the time that its requests had to wait before they were sent."""

from __future__ import annotations

import asyncio

import pytest

from bench.load.closed_loop import measure
from bench.load.open_loop import measure_at


class Service:
    """Answers after 1 ms of its own clock, but stands still for a second at one time. One request
    after the other is served.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self.free_at_s = 0.0
        self.stalls_at_s = 1.0
        self.served = 0

    def clock(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        until = self.now_s + seconds
        while self.now_s < until - 1e-9:  # noqa: ASYNC110 - the clock has no event
            await asyncio.sleep(0)

    async def request(self) -> int:
        start = max(self.now_s, self.free_at_s)
        if start >= self.stalls_at_s:
            start += 1.0
            self.stalls_at_s = float("inf")
        self.free_at_s = start + 0.001
        while self.now_s < self.free_at_s - 1e-9:  # noqa: ASYNC110 - the clock has no event
            await asyncio.sleep(0)
        self.served += 1
        return 1


async def test_a_stall_is_in_the_latency_of_all_that_were_to_be_sent_meanwhile() -> None:
    service = Service()
    running = asyncio.create_task(_tick(service))
    sample = await measure_at(
        service.request,
        100.0,
        warmup_s=0.0,
        seconds=4.0,
        clock=service.clock,
        sleep=service.sleep,
    )
    running.cancel()
    assert len(sample.latencies_ms) == 400, "all that were intended, whenever they were answered"
    late = [ms for ms in sample.latencies_ms if ms > 100]
    assert 80 <= len(late) <= 110, "a second's requests waited for the stall"
    assert 900 < sample.percentile(1.0) < 1200


async def test_a_closed_loop_hides_the_same_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    """Why the open loop is there: one of a thousand latencies shows the stall."""
    service = Service()
    running = asyncio.create_task(_tick(service))
    monkeypatch.setattr("bench.load.closed_loop.time.perf_counter", service.clock)
    sample = await measure([service.request], warmup_s=0.0, seconds=4.0)
    running.cancel()
    assert sample.percentile(0.99) < 10
    assert sum(ms > 100 for ms in sample.latencies_ms) == 1


async def _tick(service: Service) -> None:
    """Time passes in steps of 0.1 ms, whoever waits for what."""
    while True:
        await asyncio.sleep(0)
        service.now_s += 0.0001


async def test_the_bound_of_requests_under_way_delays_and_is_counted() -> None:
    service = Service()
    service.stalls_at_s = 0.0
    running = asyncio.create_task(_tick(service))
    sample = await measure_at(
        service.request,
        100.0,
        warmup_s=0.0,
        seconds=1.0,
        under_way_max=1,
        clock=service.clock,
        sleep=service.sleep,
    )
    running.cancel()
    assert len(sample.latencies_ms) == 100
    assert sample.percentile(0.5) > 300, "those behind the stall waited to be sent"
    assert sample.seconds >= 1.0


async def test_what_was_meant_for_the_warm_up_does_not_count() -> None:
    service = Service()
    service.stalls_at_s = float("inf")
    running = asyncio.create_task(_tick(service))
    sample = await measure_at(
        service.request,
        100.0,
        warmup_s=1.0,
        seconds=1.0,
        clock=service.clock,
        sleep=service.sleep,
    )
    running.cancel()
    assert service.served == 200
    assert sample.records == len(sample.latencies_ms) == 100


async def test_an_error_is_raised() -> None:
    async def request() -> int:
        raise ConnectionError

    with pytest.raises(ExceptionGroup) as raised:
        await measure_at(request, 1000.0, warmup_s=0.0, seconds=0.01)
    assert isinstance(raised.value.exceptions[0], ConnectionError)
