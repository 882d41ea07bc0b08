"""Patience with Spark on a busy machine: it gives the Python process of a streaming source ten
seconds to start, which no setting changes. Such a failure says nothing about the query, which has
read nothing yet; it is started again, as whoever runs queries does.

A process starts with a third of the work from the pyspark that is installed here. Spark puts
its own copy in front, an archive without compiled files, which every process compiles anew. It is
the pyspark that the tests use, so that they can be run with another one than the environment's.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

ATTEMPTS: Final = 10
_LATE: Final = "failed to connect back"


def quick_python(directory: Path) -> str:
    """A command for PYSPARK_PYTHON that starts this interpreter without Spark's archive."""
    root = Path(__file__).parents[2]
    found = importlib.util.find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    paths = [root / "client", root, Path(found.origin).parents[1]]
    command = directory / "python"
    command.write_text(
        f'#!/bin/sh\nPYTHONPATH="{":".join(map(str, paths))}" exec "{sys.executable}" "$@"\n'
    )
    command.chmod(0o755)
    return str(command)


def to_the_end(start: Callable[[], Any]) -> Any:
    """Start a query, as often as its process came late, and wait for its end; returns the query."""
    for attempt in range(ATTEMPTS):
        query = start()
        try:
            query.awaitTermination()
        except Exception as error:
            if _LATE not in str(error) or attempt + 1 == ATTEMPTS:
                raise
        else:
            return query
    raise AssertionError
