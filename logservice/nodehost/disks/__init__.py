"""The disks of a store: what one of them can stop, and who waits for it.

Start at `directory.py`: a data directory with its log storage, its engine and its threads;
`directories.py` says in which of them a replica lives, `halts.py` what does not run because of its
data or disk. `engine.py` makes everything durable, one commit group after the other. `executor.py`,
`fetching.py` and `read_budget.py` keep disk work off the event loop. All of nodehost may import it.
"""
