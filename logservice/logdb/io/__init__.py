"""What log storage asks of the operating system and of LevelDB: seams and implementations.

`vfs.py` and `kv.py` are the seams, each with a real implementation and one in memory: start reading
with `vfs.py`. On top of them: `segment_files.py` (the open segments), `survey.py` (reading around
bad sectors), `read_ahead.py`, and `data_directory.py` (whose directory this is). It imports
`format/` alone. All of `logdb/` may import it, and above it whoever opens a file or a directory.
"""
