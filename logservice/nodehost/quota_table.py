"""QuotaTable: what identities may use of this store, as HAKeeper last said; one per store.

It is not kept across restarts: until the first heartbeat is answered the store goes by its
configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from logservice.hakeeper.commands.quotas import EVERY_IDENTITY, IdentityQuota


class QuotaTable:
    """On the loop thread."""

    def __init__(self) -> None:
        """Nothing is set."""
        self.version = 0
        self.listeners: list[Callable[[], None]] = []
        """Called after every change."""
        self._rows: dict[str, IdentityQuota] = {}

    def update(self, version: int, rows: Sequence[IdentityQuota]) -> None:
        """Take in what an answer says; it is in force at once."""
        self.version = version
        self._rows = {row.identity: row for row in rows}
        for listener in self.listeners:
            listener()

    def value(self, name: str, identity: str = EVERY_IDENTITY) -> int | None:
        """That value of the identity, or else of every identity; None: as configured."""
        for row in (self._rows.get(identity), self._rows.get(EVERY_IDENTITY)):
            found: int | None = getattr(row, name, None)
            if found is not None:
                return found
        return None
