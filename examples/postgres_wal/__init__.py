"""PostgreSQL's write-ahead log on the log service: `python -m examples.postgres_wal`.

Start with `shipper.py` (a commit of PostgreSQL waits for the log) and `wal_log.py` (from the log
back to files of WAL). PostgreSQL's protocol is in `examples/postgres`, `tool.py` has the
programs, `story.py` is the whole of it. docs/postgres.md says what it
promises.
"""
