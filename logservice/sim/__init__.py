"""The deterministic world: whole clusters of real stores in one thread, in virtual time.

Beside `server`: uses nodehost and below; nothing uses it. `python -m logservice.sim --help`.
"""
