"""ciphers: which suites of TLS 1.2 gRPC uses, said before it is imported.

Theory of operation. gRPC reads its cipher suites from a variable of the environment, once, when its
core starts, which is at its import. So a store's process sets the variable from its configuration
first (`choose`), and a port under TLS looks whether that was done (`chosen`): suites that a
configuration names and that are not in force would be a promise that nobody keeps. This file must
not import gRPC, directly or by what it imports.

The suites of TLS 1.3 are not chosen. There are three, all of them good, and gRPC's library has no
way to change them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

_VARIABLE: Final = "GRPC_SSL_CIPHER_SUITES"

_chosen: list[str] = []
"""What `choose` was given, at most one."""


def choose(suites: Sequence[str]) -> None:
    """Have gRPC use `suites` only; nothing is changed by an empty list."""
    if not suites:
        return
    wanted = ":".join(suites)
    assert _chosen in ([], [wanted]), "one process has one set of suites"
    if not _chosen:
        assert "grpc" not in sys.modules, "gRPC has read its cipher suites already"
        os.environ[_VARIABLE] = wanted
        _chosen.append(wanted)


def chosen(suites: Sequence[str]) -> bool:
    """Whether gRPC uses `suites`, or whatever it likes when there are none."""
    return not suites or _chosen == [":".join(suites)]
