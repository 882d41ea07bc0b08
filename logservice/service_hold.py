"""service_hold: the name of the hold that a log has for a service of the database.

Theory of operation. What a service has replayed of a log holds the truncation of that log. The hold
is like any other; its name alone says that HAKeeper wants it (`hakeeper.stores.service_holds`).
The name carries a number that HAKeeper uses once: the index of the entry by which this service
began to replay this log. So a command that comes late, from a store that heard of the service
before it went and came back, cannot remove the hold that it has now.

The name of a service may be longer than there is room. It stands behind the number, for people, and
may be cut.
"""

from __future__ import annotations

from typing import Final

from logservice.bounds import NAME_BYTES_MAX
from logservice.ids import Index

PREFIX: Final = "service:"
"""Names of holds that begin so are HAKeeper's, from cluster version 2 on."""


def hold_name(service: str, since: Index) -> str:
    """The name of the hold for a service that began to replay the log with that entry."""
    return f"{PREFIX}{since}:{service}".encode()[:NAME_BYTES_MAX].decode(errors="ignore")


def is_service_hold(name: str) -> bool:
    """Whether HAKeeper decides about the hold of that name."""
    return name.startswith(PREFIX)
