"""What the benchmark counts."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from bench import closed_loop
from bench.closed_loop import Sample, measure
from bench.report import Report, Row


async def test_only_what_is_acked_in_the_window_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock goes on by a millisecond with every request."""
    now_ms = 0

    async def request() -> int:
        nonlocal now_ms
        await asyncio.sleep(0)
        now_ms += 1
        return 3

    monkeypatch.setattr(closed_loop, "time", SimpleNamespace(perf_counter=lambda: now_ms / 1000))
    sample = await measure([request, request], warmup_s=0.0205, seconds=0.05)
    assert len(sample.latencies_ms) == 50, "those that ended at 21 to 70 ms, of 71 or 72"
    assert now_ms > 70
    assert sample.records == 150
    assert sample.latencies_ms == tuple(sorted(sample.latencies_ms))
    assert sample.rate == pytest.approx(sample.records / 0.05)


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


def test_the_report_compares_medians() -> None:
    def sample(rate: int) -> Sample:
        return Sample(rate, 1.0, (1.0, 2.0))

    row = Row("64 callers", [sample(3000), sample(1000), sample(2000)], [sample(500)])
    report = Report({"cores": "2"}, [row, Row("alone", [sample(200_000)])], {"restart": [1, 3, 2]})
    _, rows = report.cells()
    assert rows[0] == [
        "64 callers",
        "2000 (1000 - 3000)",
        "2.00 / 2.00",
        "500 (500 - 500)",
        "2.00 / 2.00",
        "4.00x",
    ]
    assert rows[1][3:] == ["-", "-", ""]
    text = report.markdown()
    assert "- cores: 2\n" in text
    assert "| restart | 2.00 s | 1.00 - 3.00 s |" in text
