"""HAKeeper's arm in a store: it reports what runs here and does what HAKeeper asks.

`heartbeats.py` reports and obeys (start there), `hakeeper_client.py` finds shard 0 and asks it,
`hakeeper_ticks.py` tells shard 0 that time passes, `bootstrap.py` starts shard 0 the very first
time, `address_book.py` and `access_book.py` remember what was heard (`remembered_file.py`).
It imports `node_host.py`; `assembly/` and `server/` import it.
"""
