"""crash: end the process at once, with a report.

A store whose invariant broke or whose disk failed must not do one thing more: it must not answer,
hand leadership away, or flush. `os._exit` skips every clean-up on purpose; the log's recovery is
the clean-up. The rest of the cluster sees one crashed minority member, which it is built to
survive.

The report is tried, and waited for LOG_LAST_LINES_S at most: a stderr that nothing reads must not
keep such a store alive.
"""

from __future__ import annotations

import os
import traceback
from typing import Final, NoReturn

from logservice.server import log_lines

CRASH_EXIT_CODE: Final = 70
"""EX_SOFTWARE of sysexits.h: supervisors may restart it, people should read the report."""


def crash(error: BaseException) -> NoReturn:
    """Print the report of `error` and exit with `CRASH_EXIT_CODE`. Never returns or raises."""
    try:
        told = "".join(traceback.format_exception(error))
        log_lines.say_last(f"logservice: FATAL: the store stops at once\n{told}")
    finally:
        os._exit(CRASH_EXIT_CODE)
