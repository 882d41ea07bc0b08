"""The mirror: standby copies of logs in a second cluster, made by a process beside the two.

It uses the client's public interface and nothing else of the service. To the source it is a reader
with a hold; in the target it brings blocks as a restore does (`archive.copying`).

`mirroring.py` is the place to start: one log, and what is true of it whoever was killed when.
`running.py` does it for all of a configuration (`settings.py`), `lag.py` says how far behind they
are, `standing.py` what an operator is shown. `promoting.py` makes a mirror a log of its own.
"""
