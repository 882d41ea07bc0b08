"""Soft bounds of bearer tokens: what is read of somebody who has not said who it is, and how often
the issuer is asked.
"""

from __future__ import annotations

from typing import Final

TOKEN_BYTES_MAX: Final = 4096
"""Bytes of a token. Those of Kubernetes have about 1 000, and a call's headers have
METADATA_BYTES_MAX in all. The gate remembers GATE_CALLERS_MAX tokens."""

TOKEN_CLAIM_BYTES_MAX: Final = 1024
"""Bytes of the claim that names the bearer, before it becomes a name of at most NAME_BYTES_MAX."""

JWKS_BYTES_MAX: Final = 256 * 1024
"""Bytes of an issuer's key set: one of Kubernetes has some 500 for each key, one with certificates
some 4 000."""

JWKS_KEYS_MAX: Final = 64
"""Keys of a set. An issuer that rotates has two or three."""

JWKS_KEY_ID_CHARS_MAX: Final = 256
"""Characters of a key's id: it is shown in the audit log's denials and in alarms."""

JWKS_FETCH_S: Final = 10.0
"""How long an issuer may take to send its keys, from the first packet to the last byte."""

JWKS_ASK_AGAIN_S: Final = 30.0
"""An unknown key id makes the store ask the issuer again at most so often, whoever sends it: else
tokens that anybody can make up would be requests to the issuer."""

JWKS_RETRY_S: Final = 10.0
"""Pause after a failed look at the keys, if `tokens.refresh_interval_s` is longer."""
