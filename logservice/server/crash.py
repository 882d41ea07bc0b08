"""crash: end the process at once, with a report.

A store whose invariant broke or whose disk failed must not do one thing more: it must not answer,
hand leadership away, or flush. `os._exit` skips every clean-up on purpose; the log's recovery is
the clean-up. The rest of the cluster sees one crashed minority member, which it is built to
survive.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Final, NoReturn

CRASH_EXIT_CODE: Final = 70
"""EX_SOFTWARE of sysexits.h: supervisors may restart it, people should read the report."""


def crash(error: BaseException) -> NoReturn:
    """Print the report of `error` and exit with `CRASH_EXIT_CODE`. Never returns or raises."""
    try:
        print("logservice: FATAL: the store stops at once", file=sys.stderr)
        traceback.print_exception(error, file=sys.stderr)
        sys.stderr.flush()
    finally:
        os._exit(CRASH_EXIT_CODE)
