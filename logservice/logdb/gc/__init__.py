"""Garbage collection: which segments can go, and the steps that free them.

Only `log_db` imports it. Start with `garbage.py` (the decision, pure), then `collection.py` (the
steps, between other commit groups).
"""
