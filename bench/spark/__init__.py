"""Spark over a log: a replay, beside Parquet files, `count()` alone, a Delta table."""
