"""What is on disk, byte by byte: records, commit groups, segments, and the values they hold.

Pure codecs: no file call; imports nothing else of log storage, and all of it may import this. Start
with `record.py`, then `commit_group.py` and `segment.py`; `group_encoder.py` writes,
`segment_scan.py` reads. `update.py` and `fault.py` are the values, `columns.py` entries as columns.
"""
