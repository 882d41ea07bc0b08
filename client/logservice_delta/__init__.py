"""logservice_delta: logs in a Delta table, each record once, without Spark and without a JVM.

`table.py` is what the table knows of a log, and how rows get into it exactly once. `tail.py`
follows logs into a table. `command.py` is the program ``logservice-table``. Needs the extra
``delta``; docs/tables.md shows how it is used.
"""

from logservice_delta.table import LogName, LogTable, TableConflict
from logservice_delta.tail import Ends, Pace, tail

__all__ = ["Ends", "LogName", "LogTable", "Pace", "TableConflict", "tail"]
