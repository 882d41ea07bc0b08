"""One replica's log: what is durable is read through a seam, what is newer is in memory.

`log.py` joins the two and moves the marks (committed, applied); start there. `storage.py` is the
seam, `memory_storage.py` its fake for tests and simulation.
"""
