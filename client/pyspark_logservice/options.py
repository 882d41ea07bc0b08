"""Options of the data source, checked once and turned into one value that pickles.

Names and meanings follow Spark's Kafka source where it has the same idea: ranges include their
start and exclude their end, -2 is the earliest LSN and -1 the one behind the latest. Keys arrive in
lower case whatever the user wrote, so they are looked up in lower case; an unknown one is refused,
because a misspelt limit that is silently ignored is worse than an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

EARLIEST: Final = -2
LATEST: Final = -1

BYTES_PER_READ_DEFAULT: Final = 4 * 1024 * 1024
"""One answer of a store: long enough to make calls cheap, short enough for the store's loop."""

PARTITION_RECORDS_DEFAULT: Final = 1_000_000
"""Records per task: about half a second of work for records of 100 bytes."""

RPC_TIMEOUT_DEFAULT_S: Final = 60.0
"""How long a task goes on trying when no replica serves; longer than a failover."""

KNOWN: Final = {
    "logservice.endpoints": "host:port of one or more stores, separated by commas",
    "logservice.rpc.timeout": "seconds a read is tried for",
    "logservice.zone": "zone of the stores that tasks prefer to read from",
    "logservice.tls.ca": "file: certificates that signed the stores' ones",
    "logservice.tls.cert": "file: the client's certificate",
    "logservice.tls.key": "file: the client's key",
    "logservice.tls.servername": "what the stores' certificates say when it is not the address",
    "shard": "one shard, or the name of a log",
    "shards": "shards separated by commas, or *",
    "startinglsn": "first LSN to read, or earliest",
    "startingoffsets": 'earliest, or JSON: {"1": 23, "2": -2}',
    "startingtimestamp": "instead of an LSN: begin at what was appended then, ms since 1970",
    "endingtimestamp": "instead of an LSN: end before what was appended then, ms since 1970",
    "endinglsn": "first LSN not to read, or latest",
    "endingoffsets": 'latest, or JSON: {"1": 99, "2": -1}',
    "minpartitions": "at least so many tasks, if there are enough records",
    "maxrecordsperpartition": "at most so many records per task",
    "maxbytesperread": "bytes asked for at a time",
    "failondataloss": "true: records that were truncated are an error",
    "includegaps": "true: a row for every LSN without a record, with the reason in column gap",
}


_MS_MAX: Final = 2**53
"""So that microseconds fit the request; the year is beyond 200,000."""

_NUMBERS: Final = re.compile(r"[-+0-9, ]*")
"""An id, or a mistaken list of them, and no name of a log."""


class OptionError(ValueError):
    """An option is missing, unknown or wrong; the message names it."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """An LSN per shard; `default` for the shards that are not named."""

    default: int
    by_shard: Mapping[int, int] = field(default_factory=dict)

    def of(self, shard: int) -> int:
        """LSN, EARLIEST or LATEST."""
        return self.by_shard.get(shard, self.default)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read and how. shards None: all of them. tls_*: names of PEM files, "" for none."""

    endpoints: str
    shards: tuple[int, ...] | None
    starting: Offsets
    ending: Offsets
    partitions_min: int = 1
    partition_records_max: int = PARTITION_RECORDS_DEFAULT
    bytes_per_read: int = BYTES_PER_READ_DEFAULT
    rpc_timeout_s: float = RPC_TIMEOUT_DEFAULT_S
    fail_on_data_loss: bool = True
    include_gaps: bool = False
    tls_ca: str = ""
    tls_certificate: str = ""
    tls_key: str = ""
    tls_server_name: str = ""
    zone: str = ""
    starting_time_us: int = 0
    ending_time_us: int = 0
    """Append times, microseconds since 1970, 0 for none: what narrows the range of every shard."""
    log: str = ""
    """The name of the log to read; then there are no `shards`, and its id is asked for."""


def parse_options(given: Mapping[str, str]) -> ReadOptions:
    """Check everything; raises OptionError."""
    options = {name.lower(): value for name, value in given.items()}
    unknown = sorted(options.keys() - KNOWN.keys())
    if unknown:
        raise OptionError(f"unknown option {unknown[0]!r}; there are: {', '.join(KNOWN)}")
    if not options.get("logservice.endpoints", "").strip():
        raise OptionError("option 'logservice.endpoints' is required: host:port,host:port")
    return ReadOptions(
        endpoints=options["logservice.endpoints"],
        shards=_shards(options),
        starting=_offsets(options, "starting", {"earliest": EARLIEST}),
        ending=_offsets(options, "ending", {"latest": LATEST}),
        partitions_min=_positive(options, "minpartitions", 1),
        partition_records_max=_positive(
            options, "maxrecordsperpartition", PARTITION_RECORDS_DEFAULT
        ),
        bytes_per_read=_positive(options, "maxbytesperread", BYTES_PER_READ_DEFAULT),
        rpc_timeout_s=_seconds(options, "logservice.rpc.timeout", RPC_TIMEOUT_DEFAULT_S),
        fail_on_data_loss=_boolean(options, "failondataloss", default=True),
        include_gaps=_boolean(options, "includegaps", default=False),
        tls_ca=options.get("logservice.tls.ca", ""),
        tls_certificate=options.get("logservice.tls.cert", ""),
        tls_key=options.get("logservice.tls.key", ""),
        tls_server_name=options.get("logservice.tls.servername", ""),
        zone=options.get("logservice.zone", ""),
        starting_time_us=_time_us(options, "starting"),
        ending_time_us=_time_us(options, "ending"),
        log=_log(options),
    )


def _log(options: Mapping[str, str]) -> str:
    """The name that the option 'shard' gives; "" when it gives an id, or is not there."""
    text = options.get("shard", "").strip()
    return "" if text == "*" or _NUMBERS.fullmatch(text) else text


def _shards(options: Mapping[str, str]) -> tuple[int, ...] | None:
    if ("shard" in options) == ("shards" in options):
        raise OptionError("exactly one of the options 'shard' and 'shards' is required")
    if _log(options):
        return ()
    text = options.get("shards", options.get("shard", "")).strip()
    if text == "*":
        return None
    try:
        shards = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError as error:
        raise OptionError(f"option 'shards': {text!r} is not a list of numbers or *") from error
    if shards[0] < 1:
        raise OptionError("option 'shards': logs are numbered from 1")
    return shards


def _offsets(options: Mapping[str, str], prefix: str, words: Mapping[str, int]) -> Offsets:
    """`words`: what this side of the range may be called; its only word is its default."""
    (default,) = words.values()
    lsn, offsets = options.get(f"{prefix}lsn"), options.get(f"{prefix}offsets")
    if lsn is not None and offsets is not None:
        raise OptionError(f"options '{prefix}Lsn' and '{prefix}Offsets' exclude each other")
    text = (lsn if lsn is not None else offsets or "").strip()
    if not text:
        return Offsets(default)
    if text.lower() in words:
        return Offsets(words[text.lower()])
    name = f"{prefix}Lsn" if lsn is not None else f"{prefix}Offsets"
    try:
        if lsn is not None:
            return Offsets(_offset(int(text), default, name))
        by_shard = json.loads(text)
        if not isinstance(by_shard, dict):
            raise OptionError(f"option '{name}': a JSON object is needed, not {text!r}")
        return Offsets(
            default,
            {int(shard): _offset(int(value), default, name) for shard, value in by_shard.items()},
        )
    except (ValueError, TypeError) as error:
        if isinstance(error, OptionError):
            raise
        raise OptionError(f"option '{name}': cannot read {text!r}") from error


def _time_us(options: Mapping[str, str], prefix: str) -> int:
    """Kafka's source counts milliseconds, so this one does."""
    text = options.get(f"{prefix}timestamp")
    if text is None:
        return 0
    name = f"{prefix}Timestamp"
    if f"{prefix}lsn" in options or f"{prefix}offsets" in options:
        raise OptionError(f"options '{name}' and '{prefix}Lsn' or 'Offsets' exclude each other")
    if not text.strip().isdecimal() or not 0 < int(text) < _MS_MAX:
        raise OptionError(f"option '{name}': {text!r} is not a time in milliseconds since 1970")
    return int(text) * 1000


def _offset(value: int, special: int, name: str) -> int:
    if value < 1 and value != special:
        raise OptionError(f"option '{name}': {value} is neither an LSN (from 1) nor {special}")
    return value


def _positive(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name)
    if text is None:
        return default
    if not text.strip().isdecimal() or int(text) < 1:
        raise OptionError(f"option '{name}': {text!r} is not a number above 0")
    return int(text)


def _seconds(options: Mapping[str, str], name: str, default: float) -> float:
    text = options.get(name)
    try:
        value = default if text is None else float(text)
    except ValueError as error:
        raise OptionError(f"option '{name}': {text!r} is not a number") from error
    if not 0 < value < float("inf"):
        raise OptionError(f"option '{name}': {text!r} is not a time")
    return value


def _boolean(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name)
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise OptionError(f"option '{name}': {text!r} is neither true nor false")
    return text.strip().lower() == "true"
