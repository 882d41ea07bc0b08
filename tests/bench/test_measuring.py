"""What the benchmark counts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from bench.load import closed_loop
from bench.load.closed_loop import Sample, measure


@dataclass
class Service:
    """Requests for three records each; the clock goes on by `step_ms` with every one."""

    step_ms: int
    now_ms: int = 0

    async def request(self) -> int:
        await asyncio.sleep(0)
        self.now_ms += self.step_ms
        return 3

    async def measured(
        self, monkeypatch: pytest.MonkeyPatch, *, warmup_s: float, seconds: float
    ) -> Sample:
        """A window of two callers."""
        clock = SimpleNamespace(perf_counter=lambda: self.now_ms / 1000)
        monkeypatch.setattr(closed_loop, "time", clock)
        return await measure([self.request] * 2, warmup_s=warmup_s, seconds=seconds)


async def test_only_what_is_acked_in_the_window_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(step_ms=1)
    sample = await service.measured(monkeypatch, warmup_s=0.0205, seconds=0.05)
    assert len(sample.latencies_ms) == 50, "those that ended at 21 to 70 ms, of 71 or 72"
    assert service.now_ms > 70
    assert sample.records == 150
    assert sample.latencies_ms == tuple(sorted(sample.latencies_ms))
    assert sample.rate == pytest.approx(sample.records / 0.05)


async def test_a_window_without_an_ack_lasts_until_the_first_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The machine stood still, or a request takes longer than the window."""
    service = Service(step_ms=400)
    sample = await service.measured(monkeypatch, warmup_s=0.1, seconds=0.2)
    assert service.now_ms == 800
    assert sample.records == 3
    assert sample.seconds == pytest.approx(0.3)
    assert sample.latencies_ms == pytest.approx((400.0,))


async def test_an_error_of_a_caller_is_raised() -> None:
    async def request() -> int:
        raise ConnectionError

    with pytest.raises(ExceptionGroup) as raised:
        await measure([request], warmup_s=0, seconds=1)
    assert isinstance(raised.value.exceptions[0], ConnectionError)


def test_percentiles() -> None:
    sample = Sample(100, 1.0, tuple(float(value) for value in range(100)))
    assert sample.percentile(0.5) == 50.0
    assert sample.percentile(0.99) == 99.0
    assert sample.percentile(1.0) == 99.0
    assert Sample(0, 1.0, ()).percentile(0.5) == 0.0
