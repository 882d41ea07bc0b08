"""The three gRPC services: from a request to a command, a query or a block, and back.

Handlers run behind `edge/`, so the caller is known and may do what it asks. They call
`nodehost` and decide nothing about a log. Start with `log_service.py`; `append_stream.py`,
`append_shards.py` (both on `append_lane.py`) and `reading.py` are its streams, and `context.py` is
what all of them share.
"""
