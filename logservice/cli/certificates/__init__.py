"""`logservice certs`: an authority of its own for a cluster that has none.

`authority.py` signs, and `commands.py` is the command line. `processes/` uses `authority.py` for
local clusters with TLS.
"""
