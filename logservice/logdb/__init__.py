"""Log storage: shared segment files, a LevelDB index derived from them, recovery, garbage
collection.
"""
