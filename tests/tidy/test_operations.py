"""The pages for operators: what they say to type exists, and a page for a task begins with it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tidy.source_tree import ROOT
from tests.tidy.test_commands import COMMANDS

PAGES = sorted((ROOT / "docs" / "operations").glob("*.md"))
TASKS = (
    "bootstrap-failed",
    "deletion",
    "drain",
    "forget-a-store",
    "learners",
    "move",
    "rebalance",
    "replace-a-machine",
    "resize",
    "zones",
)
_LINE = re.compile(
    r"(?<![\w/.-])(?<!-n )(?<!--entrypoint )(logctl|logservice) ([a-z][a-z-]+(?![.\w-])[^`\n]*)"
)
"""Not the namespace of a cluster of containers that has the program's name."""
_END = re.compile(r"\s*(?:[|;&<>#)]|$).*")


def check_commands(text: str) -> None:
    """Every command and every option in it exists."""
    for program, rest in _LINE.findall(text):
        words = _END.sub("", rest).split()
        path = program
        while words and f"{path} {words[0]}" in COMMANDS:
            path = f"{path} {words.pop(0)}"
        assert path != program, f"{program} {rest}: no such command"
        options = COMMANDS[path].params
        known = {"--help", *(name for one in options for name in (*one.opts, *one.secondary_opts))}
        for word in words:
            option = word.partition("=")[0].rstrip(".,:")
            if re.fullmatch("--?[a-z][a-z-]*", option):
                assert option in known, f"{path}: no option {option}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_says_to_type_exists(page: Path) -> None:
    check_commands(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", TASKS)
def test_a_page_for_a_task_begins_with_what_to_type(name: str) -> None:
    page = (ROOT / "docs" / "operations" / f"{name}.md").read_text(encoding="utf-8")
    title, first = page.split("\n\n")[:2]
    assert title.startswith("# ")
    assert first.startswith("**Type** ")
    assert "`logctl " in first
    index = (ROOT / "docs" / "operations" / "README.md").read_text(encoding="utf-8")
    assert f"]({name}.md)" in index
