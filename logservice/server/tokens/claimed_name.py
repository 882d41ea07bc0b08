"""claimed_name: which client a token's claim names.

Theory of operation. A claim is any text (``system:serviceaccount:orders:backend``, a mail address);
the name of a client has letters, digits, dots, hyphens and underscores. So the text is spelled out:
letters, digits, dots and hyphens stay, a colon becomes ``__``, and every other byte of its UTF-8
becomes an underscore and two hexadecimal digits. Two different texts never become one name, since
what follows an underscore says how to read it back. The operator's prefix stands before it.

Certificates and tokens are given out by different people. With a prefix no token names a client
that a certificate can name: a store that takes tokens refuses certificates whose name begins with
the prefix (`reserved`). With an empty prefix, which has to be written down, the issuer can name
every client there is.

INV-TOKEN-1: with a prefix, no certificate and no token are of one identity; and no two claims are.
"""

from __future__ import annotations

import re
from typing import Final

from logservice_wire.errors import Unauthenticated

from logservice import bounds
from logservice.identity import Identity, IdentityKind, parse_uri

_SPELLED: Final = re.compile(rb"[^A-Za-z0-9.-]")


def client_of(claim: str, prefix: str, trust_domain: str, cluster_id: str) -> Identity:
    """The client that `claim` names. Raises Unauthenticated for text that can name none."""
    said = claim.encode("utf-8", "surrogatepass")
    if not said or len(said) > bounds.TOKEN_CLAIM_BYTES_MAX:
        raise Unauthenticated("the token's claim is empty, or too long for a name")
    name = prefix + _SPELLED.sub(_spelled, said).decode("ascii")
    found = Identity(trust_domain, cluster_id, IdentityKind.CLIENT, name)
    if parse_uri(found.uri) != found:
        raise Unauthenticated(
            f"the token's claim does not make a name of a client: {name[: bounds.NAME_BYTES_MAX]!r}"
        )
    return found


def reserved(name: str, prefix: str) -> bool:
    """Whether `name` is one that only tokens can have."""
    return bool(prefix) and name.startswith(prefix)


def _spelled(found: re.Match[bytes]) -> bytes:
    return b"__" if found[0] == b":" else b"_%02x" % found[0][0]
