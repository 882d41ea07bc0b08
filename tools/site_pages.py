"""site_pages: which pages the site has, and where they stand in it. MkDocs calls it (`mkdocs.yml`).

Theory of operation. MkDocs wants all pages below one folder; ours are beside what they speak of. So
the pages here are what git knows: every Markdown file but the templates in `tools/`, and the files
that such a page shows or names (pictures, a few sources). Each keeps its path from the root of the
tree, and the order of the navigation is `SECTIONS`. A page that no section takes fails the build.

It runs in an environment of its own (`requirements/docs.in`).
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).resolve().parent.parent

SECTIONS: Final = {
    "Start": (
        "README.md docs/concepts/log.md docs/concepts/cluster.md docs/operations/quickstart.md "
        "docs/guarantees.md docs/comparison.md docs/performance.md docs/glossary.md CHANGELOG.md"
    ),
    "Clients": "docs/client.md docs/protocol.md docs/digest.md client/* examples/*",
    "Spark and tables": "docs/spark.md docs/tables.md docs/postgres*.md docs/archive.md",
    "Operations": "docs/operations/README.md docs/operations/*",
    "API": "docs/api/client.md docs/api/*",
    "Reference": (
        "docs/commands.md docs/limits.md docs/deviations.md docs/formats/README.md docs/formats/* "
        "SECURITY.md THREAT_MODEL.md"
    ),
    "Inside": (
        "ARCHITECTURE.md CONTRIBUTING.md docs/engineering-notes/README.md "
        "docs/engineering-notes/* docs/*.md tests/*"
    ),
}
"""The tabs, and patterns of the pages in each; a page stands where it is taken first."""

NO_PAGES: Final = ("tools/",)
_TITLE: Final = re.compile(r"^# (.+)$", re.MULTILINE)
_NAMED: Final = re.compile(r"""(?:\]\(|src="|srcset=")([^)\s"#]+)""")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """MkDocs asks for the navigation."""
    config.nav = navigation()
    return config


def navigation() -> list[dict[str, list[dict[str, str]]]]:
    """Sections with their pages. Raises ValueError for a page that no section takes."""
    left = pages()
    nav = []
    for section, patterns in SECTIONS.items():
        taken = [page for pattern in patterns.split() for page in _take(left, pattern)]
        nav.append({section: [{title(page): page} for page in taken]})
    if left:
        raise ValueError(f"no section of tools/site_pages.py takes {', '.join(left)}")
    return nav


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The pages and what they name, and of MkDocs' own what the theme brings."""
    from mkdocs.structure.files import Files  # here, since only the site's environment has it

    ours = [*pages(), *dict.fromkeys(named_files())]
    theme = [file for file in files if file.src_dir != config.docs_dir]
    return Files([_file(name, ROOT, config) for name in ours] + theme + [_style(config)])


def pages() -> list[str]:
    """The pages, from the root of the tree."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return sorted(
        name
        for name in set(listed.stdout.splitlines())
        if not name.startswith(NO_PAGES) and (ROOT / name).exists()
    )


def named_files() -> Iterator[str]:
    """What is no page, and a page names."""
    for page in pages():
        text = (ROOT / page).read_text("utf-8")
        for link in _NAMED.findall(text):
            target = (ROOT / page).parent / link
            if target.is_file() and target.suffix != ".md":
                yield target.resolve().relative_to(ROOT).as_posix()


def title(page: str) -> str:
    """The first heading, without marks."""
    found = _TITLE.search((ROOT / page).read_text("utf-8"))
    return found[1].replace("`", "") if found else page


def _take(left: list[str], pattern: str) -> list[str]:
    taken = [page for page in left if fnmatch(page, pattern)]
    left[:] = [page for page in left if page not in taken]
    return taken


def _file(name: str, folder: Path, config: MkDocsConfig) -> File:
    from mkdocs.structure.files import File

    return File(name, str(folder), config.site_dir, use_directory_urls=False)


def _style(config: MkDocsConfig) -> File:
    return _file("site.css", ROOT / "tools", config)
