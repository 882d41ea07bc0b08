"""The report on the whole cluster that any store can give.

`report.py` asks for HAKeeper's view and the stores' statuses: start reading there. `rows.py`
combines the two. `port/`, the Admin service and `cli/ctl/` import it.
"""
