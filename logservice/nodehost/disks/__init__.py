"""The disks of a store: what one of them can stop, and who waits for it.

Start at `directory.py`: a data directory with its log storage, its engine and its threads.
`directories.py` says in which directory a replica lives, `halts.py` which replicas do not run
because of their data or disk. `engine.py` makes everything durable, one commit group after the
other. `executor.py`, `fetching.py` and `read_budget.py` keep disk work off the event loop. All of
nodehost may import it.
"""
