"""A state that comes and goes is two events, however often it is looked at."""

from __future__ import annotations

import logging

import pytest

from logservice import bounds
from logservice.clock import ManualClock
from logservice.config import parse
from logservice.events import Event, emit
from logservice.server.monitor.own.event_ring import EventRing
from logservice.server.monitor.own.reporter import StatusReporter
from logservice.server.monitor.own.watch import Watch
from tests.server.monitor.samples import not_ready, status

CONFIG = """
[store]
store_id = "s1"
cluster_id = "c"
data_directories = ["data"]
[listen]
insecure_plaintext = true
[bootstrap]
hakeeper_members = [{ store_id = "s1", peer_address = "127.0.0.1:1" }]
"""


@pytest.fixture
def watch() -> Watch:
    return Watch(StatusReporter(parse(CONFIG), EventRing(10), dict, ManualClock()))


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.event for record in caplog.records if hasattr(record, "event")]
    caplog.clear()
    return found


@pytest.mark.parametrize(
    ("bad", "begins", "ends"),
    [
        ({"reasons": (not_ready("no_leader", 4),)}, "not_ready", "reason_gone"),
        (
            {"logdb": {"durable_write_p99_us": bounds.SLOW_DURABLE_WRITE_US + 1}},
            "slow_disk",
            "slow_disk_over",
        ),
        (
            {"heartbeat_age_s": bounds.HAKEEPER_SILENT_S + 1},
            "hakeeper_silent",
            "hakeeper_answers",
        ),
    ],
)
def test_once_when_it_comes_and_once_when_it_goes(
    watch: Watch, caplog: pytest.LogCaptureFixture, bad: dict[str, object], begins: str, ends: str
) -> None:
    caplog.set_level(logging.INFO)
    good = {"logdb": {"durable_write_p99_us": 100.0}}
    watch.look(status(**good))
    assert events(caplog) == []
    for _ in range(3):
        watch.look(status(**(good | bad)))
    assert events(caplog) == [begins]
    for _ in range(3):
        watch.look(status(**good))
    assert events(caplog) == [ends]


def test_many_shards_are_one_event(watch: Watch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    watch.look(status(reasons=tuple(not_ready("no_leader", shard) for shard in range(1, 90))))
    watch.look(status(reasons=(not_ready("no_leader", 5), not_ready("disk_full"))))
    assert [record.getMessage() for record in caplog.records] == [
        "not ready: no_leader, 89 times: shard 1: why",
        "not ready: disk_full, 1 times: why",
    ]


def test_starting_is_no_trouble(watch: Watch, caplog: pytest.LogCaptureFixture) -> None:
    watch.look(status(reasons=(not_ready("starting"),), logdb={}))
    assert events(caplog) == []


def test_the_ring_keeps_the_newest_events_only() -> None:
    ring = EventRing(3)
    logger = logging.getLogger("test-ring")
    logger.setLevel(logging.INFO)
    logger.addHandler(ring)
    logger.info("no event")
    for number in range(5):
        emit(logger, Event.STORE_STOPPED, store=f"s{number}")
    assert [line.message for line in ring.newest(2)] == ["s3 has stopped", "s4 has stopped"]
    assert [line.number for line in ring.newest(10)] == [3, 4, 5]
