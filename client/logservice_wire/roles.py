"""Roles: what a grant of the access list allows; an RPC asks for one of them (`rpcs`)."""

from __future__ import annotations

import enum


class Role(enum.StrEnum):
    """The words stand in the access list and in requests that change it."""

    APPEND = "append"
    READ = "read"
    TRUNCATE = "truncate"
    HOLD = "hold"
    """To set holds for readers (`reader_hold`); from cluster version 2 on."""
    ADMIN = "admin"
