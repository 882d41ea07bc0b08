"""How space comes back: snapshots are exported, and installed behind what clients truncated.

Start at `worker.py`: it visits the replicas of one data directory, exports their state and installs
a snapshot at or below the truncation LSN. `keeper.py` is how, also for who asks the NodeHost for a
snapshot or a compaction (`asked.py`). `exports.py` keeps the files, `log_meter.py` tells how
many bytes of the log lie between two of them. Only `assembly` and the store's status may import it.
"""
