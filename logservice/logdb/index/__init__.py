"""What is known in memory of each replica: its newest state, and where its entries lie.

Imports `format/` alone. Start with `replica_state.py` (what a written run changes), then `index.py`
(index -> place, LSN -> index, live bytes per segment); `entry_cache.py` keeps the newest entries.
"""
