"""Log shards' replicated state machine: pure, deterministic, small; user records are never in
it.
"""
