"""When a stream follows the leader that its acks name."""

from __future__ import annotations

import asyncio

import pytest
from logservice_client.bounds import HINT_AGAIN_MAX_S, HINT_AGAIN_S
from logservice_client.pacing import LeaderHint


class Clock:
    """A loop whose time is set."""

    def __init__(self) -> None:
        self.now = 100.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    one = Clock()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: one)
    return one


def test_an_address_where_no_stream_stays_is_followed_less_and_less_often(clock: Clock) -> None:
    hint = LeaderHint()
    assert hint.follow("a")
    pause_s, pauses = HINT_AGAIN_S, 0
    while pauses < 8:
        clock.now += pause_s - 0.001
        assert not hint.follow("a")
        clock.now += 0.001
        assert hint.follow("a")
        pause_s, pauses = min(2 * pause_s, HINT_AGAIN_MAX_S), pauses + 1
    assert pause_s == HINT_AGAIN_MAX_S


def test_another_address_and_one_that_was_reached_are_followed_at_once(clock: Clock) -> None:
    hint = LeaderHint()
    for address in ("a", "b", "a"):
        assert hint.follow(address)
        assert not hint.follow(address)
    clock.now += HINT_AGAIN_S
    assert hint.follow("a")
    hint.reached()
    assert hint.follow("a")
    clock.now += HINT_AGAIN_S
    assert hint.follow("a"), "the pauses begin anew"
