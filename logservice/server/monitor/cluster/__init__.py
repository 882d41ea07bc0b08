"""The report on the whole cluster that any store can give.

`report.py` asks for HAKeeper's view and the stores' statuses: start reading there. `rows.py`
combines the two, and `diagnosis.py` says what is wrong. `console.py` asks for the rest when
somebody looks. `port/`, the Admin service and `cli/ctl/` import it.
"""
