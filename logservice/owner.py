"""Owner: in whose name an entry was proposed, and which store vouches for that.

Theory of operation. The store that a client calls authenticates it, and writes the client's
identity and its own name beside what it proposes. Every replica judges by that alone: a session, a
writer epoch and a hold belong to the identity in the entry that made them (`rsm`). This file
alone decides how an entry says it:

- a command carries both in full (`Author`): commands are rare, and people read them;
- a block carries 40 bytes (`Claim`): a digest of the identity, the nonce of its session, a digest
  of the store.

An identity is the URI of a client's certificate, or `ANONYMOUS` for everybody in plaintext. The
digest of an identity is 16 bytes of BLAKE2b: identities are made by whoever runs the cluster's
certificate authority, so nobody can look for two with one digest.

The nonce is a secret between a client and the members of the shard. It keeps apart clients that
share an identity; other identities are refused whether they know the nonce or not.

References: THREAT_MODEL.md.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

from logservice.ids import StoreId

ANONYMOUS: Final = "anonymous"
"""The identity of every caller in plaintext."""

OWNER_BYTES: Final = 16
NONCE_BYTES: Final = 16
NO_NONCE: Final = bytes(NONCE_BYTES)
"""The nonce of a block without a session; no session has it."""


@lru_cache(maxsize=4096)
def owner_digest(identity: str) -> bytes:
    """What stands for `identity` in a block and in a row of the session table."""
    return blake2b(identity.encode(), digest_size=OWNER_BYTES).digest()


@lru_cache(maxsize=4096)
def store_digest(store: StoreId) -> int:
    """What stands for `store` in a block."""
    return int.from_bytes(blake2b(store.encode(), digest_size=8).digest(), "little")


class Claim(NamedTuple):
    """What a block says of itself: its owner, the proof of its session, the store that vouches."""

    owner: bytes
    nonce: bytes
    store: int

    def __repr__(self) -> str:
        """The nonce is left out: it is a secret, and this text ends in logs."""
        return f"Claim(owner={self.owner.hex()}, store={self.store:016x})"


class Author(NamedTuple):
    """Who asked for a command: an identity, as `store` authenticated it."""

    identity: str
    store: StoreId

    def claim(self, nonce: bytes = NO_NONCE) -> Claim:
        """The claim of this author's block, which is of the session with `nonce`, or of none."""
        return Claim(owner_digest(self.identity), nonce, store_digest(self.store))
