"""PostgreSQL's changes in a log, and tables that follow: `python -m examples.postgres_changes`.

Start with `change.py` (what a record of the log is) and `shipper.py` (each committed change is in
the log, once). `delta_table.py` and `spark_table.py` make a table of it. `tool.py` has the
programs, `story.py` is the whole of it. docs/postgres-changes.md says what it promises.
"""
