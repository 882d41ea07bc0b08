"""PostgreSQL's write-ahead log on the log service: `python -m examples.postgres_wal`.

Start with `shipper.py` (a commit of PostgreSQL waits for the log) and `wal_log.py` (from the log
back to files of WAL). `protocol.py` and `replication.py` are what is needed of PostgreSQL's
protocol, `tool.py` the programs, `story.py` the whole of it. docs/postgres.md says what it
promises.
"""
