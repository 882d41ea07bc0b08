"""What a store shows: probes, metrics, the documents of ``/api/v1``, and the page in `ui/`.

`own/` is what a store says about itself, `cluster/` the picture of all of them, `port/` serves both
over HTTP. `monitor.py` puts them together; start there. The services and `store.py` import it.
"""
