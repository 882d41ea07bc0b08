"""The store's own certificates, followed as their files change.

`client_port.py`, `store.py` and `cli` use it; it imports nothing of the server. Start with
`store_tls.py`; `pem_files.py` checks a set of files before anything uses it.
"""
