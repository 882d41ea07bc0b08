"""Options of the data source, checked once and turned into one value that pickles.

Names and meanings follow Spark's Kafka source where it has the same idea: ranges include their
start and exclude their end, -2 is the earliest LSN and -1 the one behind the latest. Keys arrive in
lower case whatever the user wrote, so they are looked up in lower case; an unknown one is refused,
because a misspelt limit that is silently ignored is worse than an error. For the same reason a
query refuses what only the other kind knows: a stream has no end, and a batch no trigger.

Where the stores are and what they are shown is `connection`'s.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from logservice_wire.bounds import HOLD_TTL_S_MIN, NAME_BYTES_MAX, READER_HOLD_TTL_S_MAX
from logservice_wire.reader_hold import PREFIX

from pyspark_logservice.checks import (
    EARLIEST,
    LATEST,
    WORDS,
    OptionError,
    boolean,
    check_known,
    lsn,
    lsns_by_shard,
    number,
    positive,
    time_us,
)
from pyspark_logservice.connection import KNOWN as CONNECTION
from pyspark_logservice.connection import Connection, add_environment, connection_values

BYTES_PER_READ_DEFAULT: Final = 4 * 1024 * 1024
"""One answer of a store: long enough to make calls cheap, short enough for the store's loop."""

BYTES_PER_READ_MAX: Final = 2**32 - 1
"""What the request's field takes."""

PARTITION_RECORDS_DEFAULT: Final = 1_000_000
"""Records per task: about half a second of work for records of 100 bytes."""

PARTITION_BYTES_DEFAULT: Final = 128 * 1024 * 1024
"""Bytes of blocks per task, about: as much as Spark's file sources give one."""

HOLD_DEFAULT_S: Final = 3600
"""How long a hold outlives the last sign of its query: an hour to start it again."""

_HOLD_NAME_MAX: Final = NAME_BYTES_MAX - len(PREFIX)

KNOWN: Final = {
    **CONNECTION,
    "logservice.zone": "zone of the stores that tasks prefer to read from",
    "shard": "logs separated by commas: ids, names, patterns of names with *; or * for all",
    "shards": "the same",
    "startingLsn": "first LSN to read, or earliest; of a stream also latest",
    "startingOffsets": 'the same per shard, in JSON: {"1": 23, "2": -2}',
    "startingTimestamp": "instead of an LSN: begin at what was appended then, ISO or ms",
    "endingTimestamp": "batch only: end before what was appended then, ISO or ms",
    "endingLsn": "batch only: first LSN not to read, or latest",
    "endingOffsets": 'batch only: the same per shard, in JSON: {"1": 99, "2": -1}',
    "maxRecordsPerTrigger": "stream only: at most so many LSNs in a micro-batch",
    "maxBytesPerTrigger": "stream only: about so many bytes in a micro-batch",
    "minPartitions": "at least so many tasks, if there are enough records",
    "maxRecordsPerPartition": "at most so many records per task",
    "maxBytesPerPartition": "about so many bytes per task",
    "maxBytesPerRead": "bytes asked for at a time",
    "failOnDataLoss": "true: records that were truncated are an error",
    "hold": "name of a hold that keeps what is not read yet",
    "holdTime": "seconds that the hold lives for",
    "includeGaps": "true: a row for every LSN without a record, with the reason in column gap",
    "includeValue": "false: no column value",
    "archive": "folder or URI of the logs' archive: what it has is read from there",
    "pushFilters": "batch only, once: conditions on shard, lsn and timestamp decide what is read",
    "columns": "columns to read, separated by commas; * for those of a frame without the option",
}

COLUMNS: Final = ("shard", "lsn", "term", "timestamp", "value")
GAP_COLUMN: Final = "gap"
MORE_COLUMNS: Final = ("key", "headers", "record_time")
"""What only wide blocks have; in a frame where the option `columns` names them."""

_NO_TABLE: Final = (
    "no options came. A permanent table cannot be of this source: Spark keeps the options of "
    "CREATE TABLE and does not hand them to a Python source when the table is read. Make a view, "
    "CREATE TEMPORARY VIEW name USING logservice OPTIONS (...), or use spark.read"
)


class Use(enum.Enum):
    """What the options are for."""

    BATCH = enum.auto()
    STREAM = enum.auto()
    ANY = enum.auto()
    """Not known yet: Spark asks for the schema before it says."""


_ONLY: Final = {
    "endingTimestamp": (Use.BATCH, "a stream has no end"),
    "endingLsn": (Use.BATCH, "a stream has no end"),
    "endingOffsets": (Use.BATCH, "a stream has no end"),
    "maxRecordsPerTrigger": (Use.STREAM, "a batch query has no triggers"),
    "maxBytesPerTrigger": (Use.STREAM, "a batch query has no triggers"),
    "pushFilters": (Use.BATCH, "Spark gives a stream no conditions"),
}


@dataclass(frozen=True, slots=True)
class Offsets:
    """An LSN per shard; `default` for the shards that are not named."""

    default: int
    by_shard: Mapping[int, int] = field(default_factory=dict)

    def of(self, shard: int) -> int:
        """LSN, EARLIEST or LATEST."""
        return self.by_shard.get(shard, self.default)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions(Connection):
    """What to read and how. shards None: all of them."""

    shards: tuple[int, ...] | None
    starting: Offsets
    ending: Offsets
    partitions_min: int = 1
    partition_records_max: int = PARTITION_RECORDS_DEFAULT
    partition_bytes: int = PARTITION_BYTES_DEFAULT
    bytes_per_read: int = BYTES_PER_READ_DEFAULT
    fail_on_data_loss: bool = True
    include_gaps: bool = False
    zone: str = ""
    starting_time_us: int = 0
    ending_time_us: int = 0
    """Append times, microseconds since 1970, 0 for none: what narrows the range of every shard."""
    names: tuple[str, ...] = ()
    """Logs that are given by name, beside `shards`; with * it is a pattern."""
    columns: tuple[str, ...] = COLUMNS
    archive: str = ""
    """Absolute path or URI, "" for none."""
    trigger_records_max: int = 0
    trigger_bytes: int = 0
    """Of a micro-batch, 0 for no limit."""
    push_filters: bool = False
    hold: str = ""
    hold_s: int = HOLD_DEFAULT_S


def parse_options(
    given: Mapping[str, str],
    use: Use = Use.BATCH,
    environment: Mapping[str, str] = os.environ,
) -> ReadOptions:
    """Check everything; raises OptionError."""
    options = {name.lower(): value for name, value in given.items()}
    if not options or "provider" in options:
        raise OptionError(_NO_TABLE)
    add_environment(options, environment)
    check_known(given, KNOWN)
    for name, (only, why) in _ONLY.items():
        if name.lower() in options and use not in (only, Use.ANY):
            raise OptionError(f"option '{name}': {why}")
    connection = connection_values(options)
    shards, names = _logs(options)
    starting_words = [EARLIEST] if use == Use.BATCH else [EARLIEST, LATEST]
    include_gaps = boolean(options, "includeGaps", default=False)
    archive = options.get("archive", "")
    read = ReadOptions(
        **connection,
        shards=shards,
        names=names,
        starting=_offsets(options, "starting", EARLIEST, starting_words),
        ending=_offsets(options, "ending", LATEST, [LATEST]),
        partitions_min=positive(options, "minPartitions", 1),
        partition_records_max=positive(
            options, "maxRecordsPerPartition", PARTITION_RECORDS_DEFAULT
        ),
        partition_bytes=positive(options, "maxBytesPerPartition", PARTITION_BYTES_DEFAULT),
        bytes_per_read=positive(
            options, "maxBytesPerRead", BYTES_PER_READ_DEFAULT, BYTES_PER_READ_MAX
        ),
        fail_on_data_loss=boolean(options, "failOnDataLoss", default=True),
        include_gaps=include_gaps,
        columns=_columns(options, include_gaps=include_gaps, archive=bool(archive)),
        trigger_records_max=positive(options, "maxRecordsPerTrigger", 0),
        trigger_bytes=positive(options, "maxBytesPerTrigger", 0),
        push_filters=_pushes(options),
        hold=_hold(options),
        hold_s=_hold_s(options),
        zone=options.get("logservice.zone", ""),
        archive=archive,
        starting_time_us=_time_us(options, "starting"),
        ending_time_us=_time_us(options, "ending"),
    )
    _check_order(read)
    if shards is not None and not names:
        check_named(read, shards)
    return read


def check_named(read: ReadOptions, shards: Iterable[int]) -> None:
    """Raise OptionError when offsets name a log that is not among `shards`, which are read."""
    for prefix, offsets in (("starting", read.starting), ("ending", read.ending)):
        strange = sorted(offsets.by_shard.keys() - set(shards))
        if strange:
            raise OptionError(
                f"option '{prefix}Offsets' names shard {strange[0]}, which is not read"
            )


def _check_order(read: ReadOptions) -> None:
    """A range that ends before it begins is a mistake, and not an empty range."""
    if 0 < read.ending_time_us < read.starting_time_us:
        raise OptionError("option 'endingTimestamp' is before 'startingTimestamp'")
    for shard in read.starting.by_shard.keys() | read.ending.by_shard.keys() | {0}:
        start, end = read.starting.of(shard), read.ending.of(shard)
        if 0 < end < start:
            of = f" of shard {shard}" if shard else ""
            raise OptionError(f"the range{of} begins at LSN {start} and ends before LSN {end}")


def _logs(options: Mapping[str, str]) -> tuple[tuple[int, ...] | None, tuple[str, ...]]:
    """The logs by id, None for all, and those by name."""
    if ("shard" in options) == ("shards" in options):
        raise OptionError("exactly one of the options 'shard' and 'shards' is required")
    option = "shard" if "shard" in options else "shards"
    parts = [part.strip() for part in options[option].split(",")]
    if parts == ["*"]:
        return None, ()
    shards, names = set(), []
    for part in parts:
        found = number(part)
        if found == 0:
            raise OptionError(f"option '{option}': logs are numbered from 1")
        if found:
            shards.add(found)
        elif not is_name(part):
            raise OptionError(f"option '{option}': {part!r} is neither an id nor the name of a log")
        else:
            names.append(part)
    return tuple(sorted(shards)), tuple(dict.fromkeys(names))


def is_name(text: str) -> bool:
    """Whether it may be the name of a log. Not every such text is one, but what is a mistaken
    number is none.
    """
    return (
        0 < len(text.encode()) <= NAME_BYTES_MAX
        and not text.lstrip("+-").replace(".", "").isdecimal()
    )


def _hold(options: Mapping[str, str]) -> str:
    """The name of the hold, without what all readers' names begin with."""
    name = options.get("hold", "")
    if "hold" in options and not 0 < len(name.encode()) <= _HOLD_NAME_MAX:
        raise OptionError(f"option 'hold': a name of 1 to {_HOLD_NAME_MAX} bytes, not {name!r}")
    return name


def _hold_s(options: Mapping[str, str]) -> int:
    if "holdtime" in options and "hold" not in options:
        raise OptionError("option 'holdTime' is for a query with the option 'hold'")
    found = positive(options, "holdTime", HOLD_DEFAULT_S, READER_HOLD_TTL_S_MAX)
    if found < HOLD_TTL_S_MIN:
        raise OptionError(f"option 'holdTime': at least {HOLD_TTL_S_MIN} seconds, not {found}")
    return found


def _pushes(options: Mapping[str, str]) -> bool:
    """Spark (4.3) keeps what a query's conditions left with the frame, and not with the query: the
    next query of the frame, and another part of the same one, may read no more than that. So
    whoever wants conditions pushed says that a frame is used once.
    """
    text = options.get("pushfilters", "false").strip().lower()
    if text not in ("false", "once"):
        raise OptionError(
            f"option 'pushFilters': {text!r} is neither false nor once. Spark reads for every "
            "query of a frame what the conditions of another one left, so there is no 'true': "
            "'once' says that each frame is used in one query, and once in it"
        )
    return text == "once"


def _columns(options: Mapping[str, str], *, include_gaps: bool, archive: bool) -> tuple[str, ...]:
    # An archive does not keep it, and what is read twice must not differ by where it was then.
    usual = tuple(name for name in COLUMNS if name != "term" or not archive)
    gap = (GAP_COLUMN,) if include_gaps else ()
    text = options.get("columns")
    if text is None:
        with_value = boolean(options, "includeValue", default=True)
        return tuple(name for name in usual if with_value or name != "value") + gap
    if "includevalue" in options:
        raise OptionError("options 'columns' and 'includeValue' exclude each other")
    every = (*usual, *MORE_COLUMNS, *gap)
    asked: list[str] = []
    for part in text.split(","):
        name = part.strip().lower()
        asked += (*usual, *gap) if name == "*" else (name,)
    for name in asked:
        if name not in every or asked.count(name) > 1:
            raise OptionError(
                f"option 'columns': {name!r} is there twice, or none of *, {', '.join(every)}"
            )
    return tuple(name for name in every if name in asked)


def _offsets(options: Mapping[str, str], prefix: str, default: int, special: list[int]) -> Offsets:
    """`special`: what this side of the range may be beside an LSN."""
    one, offsets = options.get(f"{prefix}lsn"), options.get(f"{prefix}offsets")
    if one is not None and offsets is not None:
        raise OptionError(f"options '{prefix}Lsn' and '{prefix}Offsets' exclude each other")
    if one is not None:
        return Offsets(lsn(one, f"{prefix}Lsn", special))
    if offsets is None:
        return Offsets(default)
    for value in special:
        if offsets.strip().lower() == WORDS[value]:
            return Offsets(value)
    return Offsets(default, lsns_by_shard(offsets, f"{prefix}Offsets", special))


def _time_us(options: Mapping[str, str], prefix: str) -> int:
    if f"{prefix}timestamp" in options and (
        f"{prefix}lsn" in options or f"{prefix}offsets" in options
    ):
        raise OptionError(
            f"options '{prefix}Timestamp' and '{prefix}Lsn' or 'Offsets' exclude each other"
        )
    return time_us(options, f"{prefix}Timestamp")
