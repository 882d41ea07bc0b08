"""A store process: what clients and operators reach of it, and how it is put together.

`edge/` is what every call passes, `services/` answers it, and `audit/` writes down who called.
`tls/` follows the certificates, and `monitor/` is the admin port. Only `cli` may import this
package. Start with `store.py` (the parts and their order), then `client_port.py` (the way of a
call).
"""
