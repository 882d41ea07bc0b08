"""Bearer tokens: who a token of the configured issuer says its bearer is.

The gate (`server.edge.gate`) asks `token_check.py`; start there. `issuer_keys.py` follows the
issuer's public keys, `jwks.py` reads them, `fetching.py` gets them from a URL, and
`claimed_name.py` decides which client a claim names. The package imports nothing of the server.
"""
