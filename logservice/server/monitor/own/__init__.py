"""What one store says about itself: whether it is ready, its replicas, figures and events.

Start with `status.py`, which is the value. `reporter.py` makes it, `readiness.py` finds the reasons
not to be ready, and `watch.py` logs what changed. `cluster/`, `port/` and the Admin service import
it.
"""
