"""version: of the installed distribution, for status calls and ``--version``."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def server_version() -> str:
    """As in pyproject.toml; "unknown" when run from a tree that was never installed."""
    try:
        return version("logservice")
    except PackageNotFoundError:
        return "unknown"
