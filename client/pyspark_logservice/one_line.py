"""in_one_line: what the driver refuses is one line in Spark's error, and no traceback.

Theory of operation. Spark runs a Python source's planning in worker processes and puts the whole
traceback of an exception into its own error. For a mistake in an option or a log that is missing
that is some forty lines of our calls, and what was asked stands in the last one. Spark's worker
leaves the traceback out when SPARK_HIDE_TRACEBACK is set, which is otherwise a setting of the
session (spark.sql.execution.pyspark.udf.hideTraceback.enabled).

So a refusal sets it in the process that ends with it: a worker that fails in planning is not used
again, and it runs nothing but sources. Only errors that say in words what to do are refusals; any
other exception is a bug, and keeps its traceback. Tasks keep theirs, too: a worker that runs tasks
runs other people's functions as well. Outside Spark's workers nothing is set.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from logservice_wire.errors import LogServiceError

from pyspark_logservice.archive import ArchiveError
from pyspark_logservice.checks import OptionError
from pyspark_logservice.loss import DataLossError
from pyspark_logservice.offsets import OffsetError
from pyspark_logservice.writing.columns import ColumnError

_REFUSALS: Final = (
    ArchiveError,
    ColumnError,
    DataLossError,
    LogServiceError,
    OffsetError,
    OptionError,
)

_HIDE: Final = "SPARK_HIDE_TRACEBACK"


@contextmanager
def in_one_line() -> Iterator[None]:
    """Around what Spark calls on the driver; as a decorator, too."""
    try:
        yield
    except _REFUSALS:
        if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
            os.environ[_HIDE] = "1"
        raise
