"""How space comes back: exported snapshots, and installing them behind what clients truncated.

Start at `worker.py`: it visits the replicas of one data directory, exports their state and installs
what lies at or below the truncation LSN. `exports.py` keeps the files, `log_meter.py` tells how
many bytes of the log lie between two of them. Only `assembly` and the store's status may import it.
"""
