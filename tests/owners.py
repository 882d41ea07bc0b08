"""Two identities, and the nonce of every session that a test opens."""

from __future__ import annotations

from logservice.ids import StoreId
from logservice.owner import Author

STORE = StoreId("s1")
APP = Author("app", STORE)
OTHER = Author("other", STORE)
NONCE = bytes(range(1, 17))
CLAIM = APP.claim(NONCE)
