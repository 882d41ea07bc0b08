"""log_levels: the names of how much a store may log, the one that writes most first."""

from __future__ import annotations

from typing import Final, Literal, get_args

LogLevelName = Literal["debug", "info", "warning", "error"]
LOG_LEVELS: Final[tuple[LogLevelName, ...]] = get_args(LogLevelName)
