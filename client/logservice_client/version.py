"""The version of this distribution; `client/pyproject.toml` has the same (tests/tidy)."""

from __future__ import annotations

from typing import Final

__version__: Final = "0.2.0.dev0"
