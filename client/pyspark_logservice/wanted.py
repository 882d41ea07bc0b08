"""Wanted: which rows the conditions of a query leave, of those that Spark gives to the source.

Theory of operation. With the option ``pushFilters=once`` Spark tells the reader the conditions that
a query's rows have to meet. Those that compare `shard`, `lsn` or `timestamp` with constants are
kept here, exactly, and Spark does not look at them again:

- `shard`: other logs are not asked for anything.
- `lsn`: of a range, LSNs outside are not read; of single LSNs (``=``, ``IN``) the blocks between
  them are passed over. A block that has others, too, loses them in the task.
- `timestamp`: it is the clients' clock, which may go back from block to block, so no LSN follows
  from it. All records of a block have the same one, so the task leaves whole blocks out, without a
  look at their records; but for wide blocks, whose records may have some each. Where there is no
  record there is no timestamp: any condition on it leaves gaps out.

A condition is true, false or unknown in SQL, and only rows for which it is true stay. `shard` and
`lsn` are never null.

What the options say of the range comes first: a plan raises the same errors with conditions as
without, but for logs that no condition wants.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final, Self

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

_Read = Callable[[object], int | None]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Numbers:
    """Whole numbers: ``first <= number < behind``; None for no end on that side. `only`: of these,
    in order, no others.
    """

    first: int | None = None
    behind: int | None = None
    only: tuple[int, ...] | None = None

    def __contains__(self, number: int) -> bool:
        if self.only is not None:
            at = bisect_left(self.only, number)
            return at < len(self.only) and self.only[at] == number
        return (self.first is None or number >= self.first) and (
            self.behind is None or number < self.behind
        )

    def cut(self, start: int, end: int) -> tuple[int, int]:
        """The smallest range with all of these that lie in ``start <= number < end``."""
        if self.only is not None:
            inside = self.between(start, end)
            return (inside[0], inside[-1] + 1) if inside else (start, start)
        start = start if self.first is None else min(max(start, self.first), end)
        return start, end if self.behind is None else max(start, min(end, self.behind))

    def between(self, start: int, end: int) -> tuple[int, ...]:
        """Those of `only` there."""
        only = self.only or ()
        return only[bisect_left(only, start) : bisect_left(only, end)]

    def at_least(self, first: int) -> Self:
        """Without those below."""
        first = first if self.first is None else max(first, self.first)
        return self._kept(replace(self, first=first))

    def below(self, behind: int) -> Self:
        """Without those from `behind` on."""
        behind = behind if self.behind is None else min(behind, self.behind)
        return self._kept(replace(self, behind=behind))

    def among(self, numbers: Iterable[int]) -> Self:
        """Those that are among `numbers`, too."""
        return replace(self, only=tuple(sorted({one for one in numbers if one in self})))

    def _kept(self, bounds: Self) -> Self:
        if self.only is None:
            return bounds
        inside = replace(bounds, only=None)
        return replace(bounds, only=tuple(one for one in self.only if one in inside))


@dataclass(frozen=True, slots=True)
class Wanted:
    """Rows with such a shard, LSN and timestamp; `times_us` None: with any or none."""

    shards: Numbers = Numbers()
    lsns: Numbers = Numbers()
    times_us: Numbers | None = None

    def met(self, condition: Filter) -> Wanted | None:
        """Those of these rows that meet a condition; None when that is for Spark to find out."""
        match tuple(getattr(condition, "attribute", ())):
            case ("shard",):
                found = _met(self.shards, condition, number_of)
                return None if found is None else replace(self, shards=found)
            case ("lsn",):
                found = _met(self.lsns, condition, number_of)
                return None if found is None else replace(self, lsns=found)
            case ("timestamp",):
                found = _met(self.times_us or Numbers(), condition, time_us_of)
                return None if found is None else replace(self, times_us=found)
        return None


EVERYTHING: Final = Wanted()


def number_of(value: object) -> int | None:
    """A constant that a BIGINT column is compared with."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def time_us_of(value: object) -> int | None:
    """A constant that the column `timestamp` is compared with, exactly, in microseconds."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // _MICROSECOND


def _met(numbers: Numbers, condition: Filter, read: _Read) -> Numbers | None:
    """Those of the numbers that meet the condition on their column; None for what is not judged
    here. `read`: the number of a constant.
    """
    if isinstance(condition, IsNotNull):
        return numbers
    if isinstance(condition, In):
        # Null is equal to nothing.
        found = [read(one) for one in condition.value if one is not None]
        known = [one for one in found if one is not None]
        return numbers.among(known) if len(known) == len(found) else None
    value = read(getattr(condition, "value", None))
    if value is None:
        return None
    match condition:
        case EqualTo() | EqualNullSafe():
            return numbers.among([value])
        case GreaterThan():
            return numbers.at_least(value + 1)
        case GreaterThanOrEqual():
            return numbers.at_least(value)
        case LessThan():
            return numbers.below(value)
        case LessThanOrEqual():
            return numbers.below(value + 1)
    return None
