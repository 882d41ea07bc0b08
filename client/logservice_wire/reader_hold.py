"""reader_hold: the names of holds that readers set for themselves.

Theory of operation. A hold decides about a log's space, so setting one needs the role *truncate*. A
reader that must not lose what it has not read yet may have the role *hold* instead, which reading
does not imply. It sets holds whose name begins with PREFIX, and nobody sets those otherwise: from
cluster version 2 on such a hold has to expire, there are few of them, and one that stands still for
too long, or keeps too many bytes, lapses (`logservice.bounds`). What it kept may be truncated then,
and its reader is told TRUNCATED.
"""

from __future__ import annotations

from typing import Final

PREFIX: Final = "reader:"


def is_reader_hold(name: str) -> bool:
    """Whether the hold of that name is a reader's."""
    return name.startswith(PREFIX)
