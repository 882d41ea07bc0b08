"""The derived index in LevelDB: a copy of what the segments say; a start reads only the tail.

`log_db`, `segment_writer`, `gc/` and `recovery/` import it. Start with `checkpoint.py` (the rows,
and why losing them loses nothing); `column_cache.py` bounds what of it is in memory.
"""
