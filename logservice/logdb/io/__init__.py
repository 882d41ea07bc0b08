"""What log storage asks of the operating system and of LevelDB: seams and implementations.

Imports `format/` alone. `vfs.py` and `kv.py` are the seams, each with a real implementation and one
in memory. On top of them: `segment_files.py` (the open segments), `survey.py` (reading around bad
sectors), `read_ahead.py`, and `data_directory.py` (whose directory this is).
"""
