"""The admin port: HTTP for probes, metrics, the API and the page.

Start with `app.py`, which answers; `board.py` is how its threads reach the event loop,
`console_pages.py` and `guarded_pages.py` are the documents with parameters, the latter for callers
with a right.
"""
