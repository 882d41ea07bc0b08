"""What becomes of a shard whose majority is gone for good: `logservice recover`.

`evidence.py` reads what the surviving data directories have, `choice.py` says which replica has the
longest log and what may be lost, `rebuild.py` writes a new data directory from that. Nothing here
runs in a store. Start reading with `rebuild.py`.
"""
