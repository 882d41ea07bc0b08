"""log_format: the log of a store process, for people (console) or machines (JSON).

Either form has one line per record; a traceback stays inside its line in JSON. Events
(`logservice.events`) carry their name and fields. A record that is logged while a call is served
carries the call's ids (`trace`). They are looked up only when a line is written, so a call that
logs nothing pays nothing. Control characters in text from others are escaped (`safe_text`): nobody
writes lines into our log, or gives orders to a terminal that shows it. `log_lines` writes them.
"""

from __future__ import annotations

import json
import logging
import textwrap
import time
from collections.abc import Mapping
from typing import Final

from logservice.config import LoggingSection
from logservice.safe_text import safe_lines, safe_text
from logservice.trace import trace_ids

_QUIET: Final = {
    # A skipped visit of the truncation worker is normal under load, and counted by the worker.
    "apscheduler": logging.ERROR,
    # Its warnings about a full queue of requests say nothing that the probes do not say.
    "waitress": logging.ERROR,
    # It warns at each attempt of an export; a batch that is given up is an error of its own.
    "opentelemetry": logging.ERROR,
}


class ConsoleFormat(logging.Formatter):
    """``time LEVEL logger: message [event] key=value``."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`; tracebacks follow on lines of their own."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        ids = "".join(f" {name}={value}" for name, value in trace_ids().items())
        line = (
            f"{moment}.{int(record.msecs):03d}Z {record.levelname:<7} {record.name}:"
            f" {record.getMessage()}{ids}"
        )
        line = safe_text(line)
        if record.exc_info:
            # The traceback is indented: an exception may quote text with lines that look like ours.
            line += "\n" + textwrap.indent(safe_lines(self.formatException(record.exc_info)), "  ")
        return line


class JsonFormat(logging.Formatter):
    """One JSON object per line: time, level, logger, message, event and its fields, ids, error."""

    def __init__(self, store: str) -> None:
        """`store` stands in every line, because logs of many stores are read together."""
        super().__init__()
        self._store = store

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, object] = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "store": self._store,
            "logger": record.name,
            "message": record.getMessage(),
        }
        event = getattr(record, "event", None)
        if event is not None:
            line["event"] = event
            fields: Mapping[str, object] = getattr(record, "event_fields", {})
            line["fields"] = {name: _plain(value) for name, value in fields.items()}
        line.update(trace_ids())
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def formatter_of(section: LoggingSection, store: str) -> logging.Formatter:
    """The form that `section` names."""
    return JsonFormat(store) if section.format == "json" else ConsoleFormat()


def quiet() -> None:
    """Libraries say only what is worth a line."""
    for name, level in _QUIET.items():
        logging.getLogger(name).setLevel(level)


def _plain(value: object) -> object:
    if isinstance(value, bool | int | float) or value is None:
        return value
    return str(value)
