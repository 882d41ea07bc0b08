"""What a disk has room for, what is kept ready on it, and the figures about it.

Imports `io/` and `index/`. Start with `disk_space.py` (the lines between full and free, and the
ballast); `spare_segments.py` is what else it can give up; `stats.py` and `oldest_pins.py` tell
people where the bytes are.
"""
