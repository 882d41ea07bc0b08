"""`logservice certs`: an authority of its own for a cluster that has none.

`authority.py` signs, `commands.py` is the command line; `processes/` uses the former for local
clusters with TLS.
"""
