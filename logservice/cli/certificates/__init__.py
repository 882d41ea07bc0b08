"""`logservice certs`: an authority of its own for a cluster that has none.

`authority.py` signs, and `commands.py` is the command line: start reading there. `main.py` names
the commands, and `processes/` imports `authority.py` for local clusters with TLS.
"""
