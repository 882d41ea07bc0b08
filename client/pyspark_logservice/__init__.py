"""Spark reads logs: ``spark.read.format("logservice")``.

Spark looks for top-level modules called ``pyspark_*`` with a `DefaultSource`, so nothing has to be
registered; the distribution only has to be installed where the driver and the executors run.
Imports `logservice_client`. Start with `source.py`; `plan.py` cuts logs into ranges on the driver,
`fetch.py` and `batches.py` read one range in a task, `replay.py` is a whole job.
"""

from pyspark_logservice.source import LogServiceDataSource as DefaultSource

__all__ = ["DefaultSource"]
