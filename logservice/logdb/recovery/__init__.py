"""From files to state: at a start, after a crash, after damage, and offline.

`log_db` imports it, and the command line the offline tools. Start with `recovery.py` (torn or
corrupt), then `resolve.py` (one replica) and `opening.py` (what a start does with both);
`offline.py` checks and dumps without a store.
"""
