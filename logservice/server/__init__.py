"""A store process: what clients and operators reach of it, and how it is put together.

`edge/` is what every call passes, `services/` answers it, `audit/` writes down who called, `tls/`
follows the certificates, `monitor/` is the admin port. `cli` may import this package, nothing else.
Start with `store.py` (the parts and their order), then `client_port.py` (the way of a call).
"""
