"""Every file, folder and module of ours that a document or a package's header names exists."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from tests.tidy.source_tree import ROOT, relative

HISTORY = {"CHANGELOG.md"}
"""Documents that also speak of files that are gone."""

MADE = {"certs/stores/NAME/", "dist/"}
"""Files that a user's own commands make."""

NAMED = re.compile(r"`([\w.-]+(?:/[\w.-]+)*(?:\.py|\.sh|/))`")
RUN = re.compile(r"python -m ((?:bench|tests|tools|logservice|examples)(?:\.\w+)*)")
TOPS = (
    "",
    "logservice",
    "logservice/sim",
    "client",
    "client/logservice_client",
    "deploy",
    "tests",
    "docs",
)


@cache
def names_of_files() -> frozenset[str]:
    return frozenset(
        path.name
        for folder in ("logservice", "client", "tests", "tools", "bench", "examples", "deploy")
        for path in (ROOT / folder).rglob("*")
    )


def exists(name: str, beside: Path) -> bool:
    """Whether a name exists: as a path from the root, a package or the document; or, when it stands
    alone, as the name of some file.
    """
    if any((ROOT / top / name).exists() for top in TOPS) or any(
        (folder / name).exists() for folder in (beside, beside.parent)
    ):
        return True
    return "/" not in name.rstrip("/") and name.rstrip("/") in names_of_files()


def documents() -> list[Path]:
    return [
        path
        for path in [
            *ROOT.glob("*.md"),
            *(ROOT / "docs").rglob("*.md"),
            *(ROOT / "logservice").rglob("__init__.py"),
        ]
        if path.name not in HISTORY
    ]


def runs(module: str) -> bool:
    """Whether ``python -m`` finds it."""
    path = ROOT / module.replace(".", "/")
    return path.with_suffix(".py").exists() or (path / "__main__.py").exists()


def missing(path: Path) -> list[str]:
    text = path.read_text("utf-8")
    return [
        name for name in NAMED.findall(text) if name not in MADE and not exists(name, path.parent)
    ] + [module for module in RUN.findall(text) if not runs(module)]


def test_every_named_file_exists() -> None:
    found = {relative(path): missing(path) for path in documents()}
    assert {path: names for path, names in found.items() if names} == {}


def test_the_rule_finds_a_file_that_is_gone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "`raft/core.py` and `raft/gone.py`, `core.py` in `raft/`, `gone.py` in `gone/`; "
        "`python -m bench --row idle`, `python -m bench.smoke`, `python -m bench.gone`"
    )
    assert missing(page) == ["raft/gone.py", "gone.py", "gone/", "bench.gone"]
