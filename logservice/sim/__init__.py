"""The deterministic world: whole clusters of real stores in one thread, in virtual time.

Beside `server`: uses `nodehost` and below, and nothing in the product uses it. Start with
`world.py` (the phases of a run), then `store.py` (a real store over simulated seams), the seams
`loop.py`, `disk.py` and `net.py`, and `checkers/`. `interfaces.py` says what these know of each
other. `python -m logservice.sim --help` runs seeds.
"""
