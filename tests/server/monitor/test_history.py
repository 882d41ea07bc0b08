"""The rings of history: points are what lay between two looks, memory is bounded, time goes on."""

from __future__ import annotations

import math

import pytest

from logservice import bounds
from logservice.server.monitor.own.history import (
    DAY,
    FIGURES,
    HOUR,
    SHARD_FIGURES,
    History,
    HistoryQuestion,
)
from logservice.server.monitor.own.status import Buckets, FollowerStatus, StoreStatus
from tests.server.monitor.samples import replica, status

EDGES = (0.001, 0.01)


def at(
    uptime_s: float, appends: tuple[int, int, int] = (0, 0, 0), **changes: object
) -> StoreStatus:
    values: dict[str, object] = {
        "uptime_s": uptime_s,
        "wall_time_us": int(uptime_s * 1e6),
        "append_seconds": Buckets(bounds=EDGES, counts=appends),
        "loop_turn_seconds": Buckets(bounds=EDGES, counts=appends),
        "logdb": {"bytes_written": appends[0] * 100, "segment_bytes": 7},
        "replicas": (),
    }
    return status(**(values | changes))


def test_a_point_is_what_lay_between_two_looks() -> None:
    history = History("s1")
    history.look(at(100, (1000, 0, 0), replicas=(replica(1, applied_lsn=50),)))
    assert history.series(HistoryQuestion(HOUR)).times_us == ()
    history.look(at(105, (1010, 0, 0)))
    assert history.series(HistoryQuestion(HOUR)).times_us == (), "the period is not over"
    history.look(at(110, (1010, 10, 0), replicas=(replica(1, applied_lsn=80),)))
    found = history.series(HistoryQuestion(HOUR))
    assert (found.store, found.times_us) == ("s1", (110_000_000,))
    assert (found.period_s, found.span_s) == (bounds.HISTORY_FINE_S, 3600)
    newest = {name: values[-1] for name, values in found.figures.items()}
    assert newest["appends_per_s"] == 2
    assert newest["records_per_s"] == 3
    assert newest["bytes_written_per_s"] == 100
    assert newest["append_p50_s"] == EDGES[0]
    assert EDGES[0] < newest["append_p99_s"] <= EDGES[1]
    assert newest["loop_turn_s"] == pytest.approx(EDGES[1])
    assert (newest["leaders"], newest["lag_entries"], newest["disk_used_bytes"]) == (1, 7, 7)
    assert set(found.figures) == set(FIGURES) == set(found.units)


def test_without_appends_their_time_is_not_known() -> None:
    history = History("s1")
    history.look(at(0))
    history.look(at(10))
    (p99,) = history.series(HistoryQuestion(HOUR)).figures["append_p99_s"]
    assert math.isnan(p99)


def test_an_hour_and_a_day_are_kept_and_no_more() -> None:
    """HISTORY_FINE_POINTS, HISTORY_COARSE_POINTS, HISTORY_FINE_S and HISTORY_COARSE_S."""
    history = History("s1")
    steps = int(bounds.HISTORY_COARSE_POINTS * bounds.HISTORY_COARSE_S / bounds.HISTORY_FINE_S)
    for step in range(steps + 30):
        history.look(at(step * bounds.HISTORY_FINE_S, (step, 0, 0)))
    for span, points, period_s in (
        (HOUR, bounds.HISTORY_FINE_POINTS, bounds.HISTORY_FINE_S),
        (DAY, bounds.HISTORY_COARSE_POINTS, bounds.HISTORY_COARSE_S),
    ):
        found = history.series(HistoryQuestion(span))
        assert len(found.times_us) == points
        assert all(len(values) == points for values in found.figures.values())
        gaps = {new - old for old, new in zip(found.times_us, found.times_us[1:], strict=False)}
        assert gaps == {int(period_s * 1e6)}, "in order, also where the ring begins anew"
        assert set(found.figures["appends_per_s"]) == {1 / bounds.HISTORY_FINE_S}
    assert history.series(HistoryQuestion("year")).times_us == ()


def test_a_log_has_a_history_while_it_is_appended_to() -> None:
    """HISTORY_SHARD_S, HISTORY_SHARD_POINTS."""
    history = History("s1")
    behind = (FollowerStatus(replica=2, lag_entries=4),)
    idle = replica(2, applied_lsn=9)
    for step in range(3):
        log = replica(1, applied_lsn=100 + 60 * step, first_lsn=11, followers=behind)
        history.look(at(step * bounds.HISTORY_SHARD_S, replicas=(log, idle)))
    found = history.series(HistoryQuestion(HOUR, 1))
    assert found.figures == {
        "records_per_s": (1.0, 1.0),
        "lag_entries": (4.0, 4.0),
        "kept_records": (150.0, 210.0),
    }
    assert set(found.units) == set(SHARD_FIGURES)
    assert history.series(HistoryQuestion(HOUR, 2)).times_us == ()
    last = replica(1, applied_lsn=220, role="follower", followers=())
    for step in range(3, 3 + bounds.HISTORY_SHARD_POINTS):
        assert history.series(HistoryQuestion(HOUR, 1)).times_us
        history.look(at(step * bounds.HISTORY_SHARD_S, replicas=(last,)))
    assert history.series(HistoryQuestion(HOUR, 1)).times_us == ()


def test_of_many_logs_those_appended_to_last_have_a_history() -> None:
    """HISTORY_SHARDS_MAX."""
    history = History("s1")
    most = bounds.HISTORY_SHARDS_MAX
    everything = [replica(shard, applied_lsn=1) for shard in range(1, most + 3)]
    history.look(at(0, replicas=tuple(everything)))
    everything[:most] = [replica(shard, applied_lsn=2) for shard in range(1, most + 1)]
    history.look(at(60, replicas=tuple(everything)))
    everything[2:] = [replica(shard, applied_lsn=3) for shard in range(3, most + 3)]
    history.look(at(120, replicas=tuple(everything)))

    def has(shard: int) -> bool:
        return bool(history.series(HistoryQuestion(HOUR, shard)).times_us)

    assert [has(1), has(2), has(3), has(most + 2)] == [False, False, True, True]
    assert len(history._shards.rings.columns) == most * len(SHARD_FIGURES)
