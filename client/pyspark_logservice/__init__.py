"""Spark reads logs: ``spark.read.format("logservice")``.

Spark looks for top-level modules called ``pyspark_*`` with a `DefaultSource`, so nothing has to be
registered; the distribution only has to be installed where the driver and the executors run.
"""

from pyspark_logservice.source import LogServiceDataSource as DefaultSource

__all__ = ["DefaultSource"]
