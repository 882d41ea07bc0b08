"""What a store shows: probes, metrics, the documents of ``/api/v1``, and the page in `ui/`.

`own/` is what a store says about itself, `cluster/` is the report on all stores, and `port/` serves
both over HTTP. `monitor.py` puts them together; start there. The services and `store.py` import it.
"""
