"""Reading entries, from memory or from segments.

`log_db`, `gc/`, `recovery/` and the layers above import it. Start with `replica_log.py` (what a
reader may ask of one replica's log); `entry_read.py` is the part that runs on another thread.
"""
