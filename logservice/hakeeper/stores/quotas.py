"""Quotas: what identities may use of the stores, and how the stores know.

Theory of operation. Every store enforces the quotas by itself, for what comes to it; HAKeeper only
keeps what is set (`wishes.quotas`). There are few rows, so an answer to a heartbeat carries all of
them, and only when the heartbeat names another version than this one. A store that has had no
answer since it started goes by its configuration.
"""

from __future__ import annotations

from logservice.hakeeper.commands.quotas import IdentityQuota
from logservice.hakeeper.state import State


def rows(state: State) -> tuple[IdentityQuota, ...]:
    """All quotas, in a fixed order; that of every identity comes first."""
    return tuple(state.quotas[identity] for identity in sorted(state.quotas))


def news(state: State, known_version: int) -> tuple[IdentityQuota, ...] | None:
    """All quotas, for a store that has another version of them; None for one that is current."""
    return None if known_version == state.quotas_version else rows(state)
