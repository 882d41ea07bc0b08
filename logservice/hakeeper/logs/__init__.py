"""A log's life as HAKeeper sees it: its wish, its end, and that it never comes back.

Logs are born in `repair/bootstrap.py`. `change.py` changes what is wanted of one, `closing.py` says
what the reports know of its Close, and `creations.py` recognises a repeated request. Start with
`deletion.py`: it deletes a log for ever (`hakeeper/tombstones.py`).
"""
