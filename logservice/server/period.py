"""period: jobs of APScheduler that come once in a period of the monotonic clock.

Theory of operation. APScheduler's own interval jobs are periods of the wall clock. Set forward by
years, it computes every missed run one by one before they become one, and the event loop stands.
Set back, it waits for as long as the step. Both end here:

- the scheduler asks for the time by `datetime.now(timezone)`, which Python makes by the zone's
  `fromutc`. In the zone that it is given, `MonotonicTime`, it is always what the monotonic clock
  shows. So whatever it compares, and however long it sleeps, no other clock has a say;
- `Period` gives one next run, a period after the one that is due. However late it is, nothing is
  made up for.

INV-PERIOD: a job is run once in each period of the monotonic clock, as far as the loop has turns,
and what was missed is run once.

The zone's days and years mean nothing: they count from the start of that clock.
"""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo
from typing import Final

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger

from logservice.clock import Clock

_START: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - the zone is put in below


class MonotonicTime(tzinfo):
    """A zone in which it is what the monotonic clock shows."""

    def __init__(self, clock: Clock) -> None:
        """By that clock."""
        self._clock = clock

    def fromutc(self, dt: datetime) -> datetime:
        """The present, whatever `dt` is: `datetime.now` asks with the wall clock's time."""
        return _START.replace(tzinfo=self) + timedelta(seconds=self._clock.monotonic())

    def utcoffset(self, dt: datetime | None) -> timedelta:
        return timedelta(0)

    def dst(self, dt: datetime | None) -> timedelta:
        return timedelta(0)

    def tzname(self, dt: datetime | None) -> str:
        return "monotonic"


class Period(BaseTrigger):  # type: ignore[misc]  # APScheduler has no types
    """Due once in so many seconds; the first time after one of them."""

    def __init__(self, seconds: float) -> None:
        """Nothing is due yet."""
        self.interval = timedelta(seconds=seconds)

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime:
        """Always later than `now`, so there is one missed run at most."""
        return now + self.interval


def scheduler_of(clock: Clock) -> AsyncIOScheduler:
    """A scheduler for jobs with a `Period`. A job has one instance at a time, and is run however
    late it is.
    """
    return AsyncIOScheduler(
        timezone=MonotonicTime(clock),
        job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
    )
