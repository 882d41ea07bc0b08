"""runbooks: the pages of docs/operations, as the store itself has them.

Who needs a runbook may have no network but that to the store. So a wheel carries the pages, beside
the page `/ui`, and a tree that runs in place has them in docs/. Where neither is there, the page
still names them.
"""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from msgspec import Struct

import logservice


class Runbook(Struct, frozen=True, kw_only=True):
    """A page. text: its Markdown."""

    page: str
    text: str


class Runbooks:
    """The pages that were there when the store started."""

    def __init__(self) -> None:
        """Look which there are."""
        carried = resources.files("logservice.server.monitor") / "ui" / "runbooks"
        in_tree = Path(logservice.__file__).parents[1] / "docs" / "operations"
        self._pages: dict[str, Traversable] = {}
        for folder in (in_tree, carried):
            if folder.is_dir():
                pages = (one for one in folder.iterdir() if one.name.endswith(".md"))
                self._pages |= {one.name: one for one in pages}

    @property
    def names(self) -> list[str]:
        """Those that there are."""
        return sorted(self._pages)

    def page(self, name: str) -> Runbook | None:
        """One of them; None when it is not there."""
        found = self._pages.get(name)
        return Runbook(page=name, text=found.read_text(encoding="utf-8")) if found else None
