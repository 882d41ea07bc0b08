"""What one store says about itself: whether it is ready, its replicas, figures and events.

Start with `status.py`, which is the value. `reporter.py` makes it, `readiness.py` finds the reasons
not to be ready, and `watch.py` logs what changed. `history.py` remembers figures, `shard_inside.py`
and `claims.py` say more when they are asked. `cluster/`, `port/` and the Admin service import it.
"""
