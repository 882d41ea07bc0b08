"""Patience with Spark on a busy machine: it gives the Python process of a streaming source ten
seconds to start, which no setting changes. Such a failure says nothing about the query, which has
read nothing yet; it is started again, as whoever runs queries does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

ATTEMPTS: Final = 10
_LATE: Final = "failed to connect back"


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
