"""Options of a write, checked once and turned into one value that pickles.

The logs that may be written are listed, by id or by name, and no pattern: a retried task must find
the same ones. The first of them is where every task of the query says what it will write
(`writer`), so it stays the first one as long as the query lives; others may be added behind it.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from logservice_wire.codecs import CODECS

from pyspark_logservice.checks import OptionError, check_known, number
from pyspark_logservice.connection import KNOWN as CONNECTION
from pyspark_logservice.connection import Connection, add_environment, connection_values
from pyspark_logservice.options import is_name

KNOWN: Final = {
    **CONNECTION,
    "logservice.writeId": "batch only: which write this is, so that doing it again appends nothing",
    "logservice.writeVersion": "batch only: number of the write among those of its writeId, from 0",
    "compression": "of blocks: none, zstd or lz4",
    "shard": "the logs that may be written, separated by commas: ids and names",
    "shards": "the same",
}

_SPARKS: Final = frozenset({"checkpointlocation", "queryname"})
"""What Spark passes on of its own options."""

_NO_CODEC: Final = "none"

_WRITE_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,64}")

VERSION_MAX: Final = 2**31 - 1
"""Epochs of a session end there; micro-batches of a second each take 68 years."""

DRAWN_TTL_S: Final = 24 * 3600
"""How long the log remembers a write whose id was drawn, from its last append on."""

DRAWN_TASK_S: Final = DRAWN_TTL_S // 2
"""How long after its id was drawn a task of such a write may begin: well within that time, whatever
the clocks of the machines say, so that no late task finds itself forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions(Connection):
    """What to write and how. logs: ids as digits, names as they are. drawn_s: when `write_id` was
    drawn, seconds since 1970; 0 if it was given.
    """

    logs: tuple[str, ...]
    write_id: str = ""
    version: int = 0
    drawn_s: float = 0.0
    codec: str | None = None
    """None, "zstd" or "lz4"."""


def parse_write_options(
    given: Mapping[str, str], *, stream: bool, environment: Mapping[str, str] = os.environ
) -> WriteOptions:
    """Check everything; raises OptionError. A batch without an id gets one here."""
    options = {name.lower(): value for name, value in given.items()}
    add_environment(options, environment)
    check_known(given, KNOWN, _SPARKS, " of a write")
    connection = connection_values(options)
    for name in ("logservice.writeid", "logservice.writeversion"):
        if stream and name in options:
            raise OptionError(f"option '{name}': a stream is known by its checkpoint")
    write_id, version, drawn_s = ("", 0, 0.0) if stream else _write_id(options)
    return WriteOptions(
        **connection,
        logs=_logs(options),
        write_id=write_id,
        version=version,
        drawn_s=drawn_s,
        codec=_codec(options),
    )


def _codec(options: Mapping[str, str]) -> str | None:
    name = options.get("compression", _NO_CODEC).strip().lower()
    if name not in (_NO_CODEC, *CODECS):
        raise OptionError(
            f"option 'compression': {name!r} is none of {', '.join((_NO_CODEC, *CODECS))}"
        )
    return None if name == _NO_CODEC else name


def _write_id(options: Mapping[str, str]) -> tuple[str, int, float]:
    given, text = options.get("logservice.writeid"), options.get("logservice.writeversion")
    if given is None:
        if text is not None:
            raise OptionError("option 'logservice.writeVersion' needs 'logservice.writeId'")
        return f"drawn-{secrets.token_hex(16)}", 0, time.time()
    if not _WRITE_ID.fullmatch(given):
        raise OptionError(
            f"option 'logservice.writeId': {given!r} is not 1 to 64 letters, digits and . _ : -"
        )
    version = 0 if text is None else number(text)
    if version is None or version > VERSION_MAX:
        raise OptionError(
            f"option 'logservice.writeVersion': {text!r} is not a number up to {VERSION_MAX}"
        )
    return given, version, 0.0


def _logs(options: Mapping[str, str]) -> tuple[str, ...]:
    if ("shard" in options) == ("shards" in options):
        raise OptionError("exactly one of the options 'shard' and 'shards' is required")
    option = "shard" if "shard" in options else "shards"
    logs: list[str] = []
    for part in options[option].split(","):
        found, name = number(part), part.strip()
        if found == 0:
            raise OptionError(f"option '{option}': logs are numbered from 1")
        if "*" in name:
            raise OptionError(f"option '{option}': {name!r}: a write lists its logs, one by one")
        if found is None and not is_name(name):
            raise OptionError(f"option '{option}': {name!r} is neither an id nor the name of a log")
        logs.append(name if found is None else str(found))
    if len(set(logs)) < len(logs):
        raise OptionError(f"option '{option}': a log is there twice")
    return tuple(logs)
