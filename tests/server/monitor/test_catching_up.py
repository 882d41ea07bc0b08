"""How long a member that is behind will take."""

from __future__ import annotations

import pytest

from logservice import bounds
from logservice.ids import ReplicaId, ShardId
from logservice.server.monitor.own.catching_up import UNKNOWN, CatchUpForecast

ONE, TWO, MEMBER = ShardId(1), ShardId(2), ReplicaId(9)


def test_two_looks_give_the_time_to_go() -> None:
    forecast = CatchUpForecast()
    assert forecast.to_go_s(ONE, MEMBER, 1000, 100.0) == UNKNOWN
    soon = 100.0 + bounds.CATCH_UP_LOOK_S / 2
    assert forecast.to_go_s(ONE, MEMBER, 900, soon) == UNKNOWN, "too soon to tell"
    assert forecast.to_go_s(ONE, MEMBER, 800, 102.0) == pytest.approx(8.0)
    assert forecast.to_go_s(ONE, MEMBER, 700, 103.0) == pytest.approx(7.0)
    # 100 bytes per second until now, 300 in the newest look.
    assert forecast.to_go_s(ONE, MEMBER, 200, 104.0) == pytest.approx(1.0)
    assert forecast.to_go_s(ONE, MEMBER, 0, 105.0) == 0.0
    assert forecast.to_go_s(ONE, MEMBER, 50, 106.0) == UNKNOWN, "it is behind anew"


def test_a_member_that_falls_back_has_no_time_to_go() -> None:
    forecast = CatchUpForecast()
    forecast.to_go_s(ONE, MEMBER, 1000, 100.0)
    assert forecast.to_go_s(ONE, MEMBER, 1500, 105.0) == UNKNOWN
    assert forecast.to_go_s(ONE, MEMBER, 1500, 110.0) == UNKNOWN


def test_what_is_not_led_here_is_forgotten() -> None:
    forecast = CatchUpForecast()
    for shard in (ONE, TWO):
        forecast.to_go_s(shard, MEMBER, 1000, 100.0)
    forecast.keep({TWO})
    assert forecast.to_go_s(ONE, MEMBER, 500, 110.0) == UNKNOWN
    assert forecast.to_go_s(TWO, MEMBER, 500, 110.0) == pytest.approx(10.0)
