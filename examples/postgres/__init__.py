"""What the examples for PostgreSQL have in common: its protocol, and a server to try them on.

Start with `protocol.py` (messages, pure) and `replication.py` (a connection; `settings.py` is what
each session sets). `scram.py` and `tls.py` say how both sides know each other. `ownership.py` is
who may write into a log.
"""
