"""Quotas: what identities may use of every store, as it is set by verb, stored and sent.

None of a value means that nobody has set it. Then counts what is set for every identity, and then
what the store is configured to (`server.edge.identity_limits`).
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from logservice.hakeeper.commands.wire_types import Natural, Owner

EVERY_IDENTITY: Final = ""
"""The identity of the row that counts for whoever has no value of its own."""

QUOTA_RATES: Final = ("requests_per_s", "bytes_per_s")
"""Per second; 0: no limit."""

QUOTA_COUNTS: Final = ("rpcs_max", "streams_max", "connections_max", "address_connections_max")
"""At a time. The last one is about an address, whoever calls from there."""

QUOTA_NAMES: Final = QUOTA_RATES + QUOTA_COUNTS


class IdentityQuota(Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """What `identity` may use of each store: unary calls, streams and connections at a time,
    requests and bytes of both ways per second.
    """

    identity: Owner = EVERY_IDENTITY
    requests_per_s: Natural | None = None
    bytes_per_s: Natural | None = None
    rpcs_max: Natural | None = None
    streams_max: Natural | None = None
    connections_max: Natural | None = None
    address_connections_max: Natural | None = None

    @property
    def says_nothing(self) -> bool:
        """Whether no value is set."""
        return all(getattr(self, name) is None for name in QUOTA_NAMES)
