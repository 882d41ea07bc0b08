"""A real database's write-ahead log on the log service: `python -m examples.sqlite_wal`."""
