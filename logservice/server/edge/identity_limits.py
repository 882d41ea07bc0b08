"""identity_limits: what each identity may use of this store now.

Theory of operation. Three places say it, and the first one that says something counts: the quota
that was set by verb for the identity, the one for every identity (`hakeeper.stores.quotas`), and
the configuration of this store. That holds for each value by itself. A change is in force with the
answer to a heartbeat.

What is lowered cuts nothing: calls, streams and connections that are there go on, and new ones are
refused until there are fewer than the new limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection

from logservice_wire.value import value

from logservice.hakeeper.commands.quotas import EVERY_IDENTITY, IdentityQuota
from logservice.nodehost.quota_table import QuotaTable
from logservice.server.edge.quota import QuotaLimits


@value
class ConfiguredLimits:
    """What the configuration says. Connections are bounded by what the port takes in all."""

    quota: QuotaLimits
    connections: int
    address_connections: int
    connections_in_all: int
    one_identity: bool = False
    """Everybody is the same identity (plaintext), which may have all connections."""
    admins: Collection[str] = ()
    """They have at least the connections that are configured, whatever a verb says: who shall take
    a quota back has to get in (INV-GATE-5)."""


class IdentityLimits:
    """One per store, on the loop thread."""

    def __init__(self, configured: ConfiguredLimits, table: QuotaTable) -> None:
        """`table`: what HAKeeper says."""
        self._configured = configured
        self._table = table

    def configure(self, configured: ConfiguredLimits) -> None:
        """The configuration says something else now; whoever follows is not told."""
        self._configured = configured

    def follow(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever HAKeeper says something else."""
        self._table.listeners.append(changed)

    def of(self, identity: str) -> QuotaLimits:
        """Calls, streams and rates."""
        table, configured = self._table, self._configured.quota

        def chosen(name: str, otherwise: float) -> float:
            found = table.value(name, identity)
            return otherwise if found is None else found

        return QuotaLimits(
            int(chosen("rpcs_max", configured.rpcs_max)),
            int(chosen("streams_max", configured.streams_max)),
            chosen("requests_per_s", configured.requests_per_s),
            chosen("bytes_per_s", configured.bytes_per_s),
        )

    def connections_of(self, identity: str) -> int:
        """Connections of the identity."""
        configured = self._configured
        if configured.one_identity:
            return configured.connections_in_all
        found = self._table.value("connections_max", identity)
        wanted = configured.connections if found is None else found
        if identity in configured.admins:
            wanted = max(wanted, configured.connections)
        return min(wanted, configured.connections_in_all)

    @property
    def address_connections(self) -> int:
        """Connections from one address."""
        found = self._table.value("address_connections_max")
        wanted = self._configured.address_connections if found is None else found
        return min(wanted, self._configured.connections_in_all)

    @property
    def version(self) -> int:
        """Of what HAKeeper said."""
        return self._table.version

    def configured(self) -> IdentityQuota:
        """The configuration, in the form of what is set by verb."""
        quota = self._configured.quota
        return IdentityQuota(
            EVERY_IDENTITY,
            math.ceil(quota.requests_per_s),
            math.ceil(quota.bytes_per_s),
            quota.rpcs_max,
            quota.streams_max,
            self._configured.connections,
            self._configured.address_connections,
        )
