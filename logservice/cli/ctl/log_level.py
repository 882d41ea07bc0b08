"""log_level: `logctl store STORE log-level`: how much a running store logs, and until when."""

from __future__ import annotations

import math
from typing import Final

from logservice_wire.rpcs import SET_LOG_LEVEL
from logservice_wire.v1 import admin_pb2

from logservice.cli.ctl.client_session import Session
from logservice.cli.ctl.direct_call import call_store
from logservice.cli.shell.output import Row

LEVELS: Final = ("debug", "info", "warning", "error")


def set_log_level(session: Session, address: str, level: str, for_s: float) -> Row:
    """Set it, and say what is in force; `for_s` 0: until the store restarts."""
    request = admin_pb2.SetLogLevelRequest(level=level, for_ms=math.ceil(for_s * 1000))
    found = call_store(address, SET_LOG_LEVEL, request, session.timeout_s, session.tls)
    return level_fields(found.log_level)


def level_fields(found: admin_pb2.LogLevel) -> Row:
    """The level as fields. An older store says nothing of it."""
    return {
        "log_level": found.level or None,
        "configured": found.configured or None,
        "ends_in_s": math.ceil(found.ends_in_ms / 1000) or None,
        "until": _until(found),
    }


def level_text(found: admin_pb2.LogLevel) -> str | None:
    """The level in one cell."""
    if found.level == found.configured:
        return found.level or None
    return f"{found.level} until {_until(found)}, then {found.configured}"


def _until(found: admin_pb2.LogLevel) -> str | None:
    if found.level == found.configured:
        return None
    if not found.ends_in_ms:
        return "the store restarts"
    return f"{math.ceil(found.ends_in_ms / 1000)} s are over"
