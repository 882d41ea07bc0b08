"""The derived index in LevelDB: a cache of what the segments say; a start reads only the tail."""
