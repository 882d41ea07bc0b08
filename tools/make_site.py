"""Builds the site of the documents, and checks every link of what was built.

MkDocs checks the links of Markdown (`strict` in `mkdocs.yml`). It does not see those in raw HTML,
of pictures above all, and those that the API's docstrings bring. So the built pages are read again:
whatever a page names must be a file of the site, and an anchor must be in that page. Addresses
outside of the site are not asked.

    python -m tools.make_site          # into artifacts/site
"""

from __future__ import annotations

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from tools.own_environment import ROOT, own_environment

SITE: Final = ROOT / "artifacts" / "site"
_NAMING: Final = {"href", "src", "srcset"}
_TIMEOUT_S: Final = 600


class Page(HTMLParser):
    """What a page names, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.named: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in _NAMING and value and tag != "base":
                self.named.append(value)
            elif name in ("id", "name") and value:
                self.anchors.add(value)


def broken_links(site: Path) -> list[str]:
    """``page: link`` for each link that leads to nothing."""
    pages = {path: Page(path.read_text("utf-8")) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        if path.name == "404.html":
            continue  # its links begin at the site's address
        for link in dict.fromkeys(page.named):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            anchor = unquote(parts.fragment)
            known = pages[target].anchors if target in pages else None
            if not target.is_file() or (anchor and known is not None and anchor not in known):
                found.append(f"{path.relative_to(site)}: {link}")
    return found


def main() -> int:
    """Build and check; returns the exit code."""
    command = [str(own_environment("docs") / "mkdocs"), "build", "--strict", "--clean", "--quiet"]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command += ["--site-dir", str(SITE)]
    done = subprocess.run(command, cwd=ROOT, env=quiet, timeout=_TIMEOUT_S)
    if done.returncode:
        return done.returncode
    found = broken_links(SITE)
    for line in found:
        print(f"leads to nothing: {line}", file=sys.stderr)
    if not found:
        count = sum(1 for _ in SITE.rglob("*.html"))
        print(f"{count} pages, and every link leads somewhere: {SITE.relative_to(ROOT)}/index.html")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
