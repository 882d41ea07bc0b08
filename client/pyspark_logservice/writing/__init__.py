"""Spark writes logs: ``df.write`` and ``df.writeStream``, each task's rows exactly once.

Start with `writer.py`, which says how; `blocks.py` makes blocks of Arrow batches, whose rows
`rows.py` checks and weighs; `options.py` and `columns.py` judge what the query says, `identity.py`
says which piece of work a task does.
"""
