"""The picture of the whole cluster that any store can show.

`rows.py` lays HAKeeper's view and the stores' statuses over each other; `report.py` asks for both.
`port/`, the Admin service and `cli/ctl/` import it.
"""
