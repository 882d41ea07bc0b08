"""What goes wrong in a world: processes, network and disks.

May be imported by `world`, `store` and `observed`. Start with `faults.py` (the rhythms of all
faults), then `damage.py` (a place goes bad at a chosen moment) and `divergence.py` with
`forgery.py` (an entry changes and every checksum still holds).
"""
