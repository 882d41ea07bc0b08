"""What one store says about itself: whether it is ready, its replicas, figures and events.

Start with `status.py`, the value; `reporter.py` makes it, `readiness.py` judges, `watch.py` logs
what changed. `cluster/`, `port/` and the Admin service import it.
"""
