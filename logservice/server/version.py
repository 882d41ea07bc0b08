"""version: the version of the installed distribution, for status calls and ``--version``."""

from __future__ import annotations

import functools
from importlib.metadata import PackageNotFoundError, version


@functools.cache
def server_version() -> str:
    """The version in pyproject.toml; "unknown" when run from a tree that was never installed.

    The files that hold it are read once, at the start: later there may be no descriptor for them.
    """
    try:
        return version("logservice")
    except PackageNotFoundError:
        return "unknown"
