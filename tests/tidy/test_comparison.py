"""docs/comparison.md: what it says of this service can be looked up, and its commands exist."""

from __future__ import annotations

import re

import pytest

from tests.tidy.source_tree import ROOT
from tests.tidy.test_operations import check_commands
from tests.tidy.test_symptoms import anchors

DOCS = ROOT / "docs"
PAGE = (DOCS / "comparison.md").read_text(encoding="utf-8")
HEADER = "| | this service |"
_LINK = re.compile(r"\]\(([^)#:]*)(?:#([^)]*))?\)")


def rows() -> list[list[str]]:
    """The cells of every row of a table that has a column for this service."""
    found: list[list[str]] = []
    ours = False
    for line in PAGE.splitlines():
        if not line.startswith("|"):
            ours = False
        elif line.startswith(HEADER):
            ours = True
        elif ours and not line.startswith("|---"):
            found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def test_the_rows_were_found() -> None:
    assert len(rows()) > 40
    assert len({row[0] for row in rows()}) == len(rows())


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_what_it_says_of_this_service_can_be_looked_up(row: list[str]) -> None:
    """A cell names a command, a file, a metric or a page, or says that there is nothing."""
    assert "`" in row[1] or "](" in row[1] or re.match("(none|nobody|no)[:;,]?", row[1]), row[1]


@pytest.mark.parametrize("name", ["etcd", "NATS JetStream", "Redpanda"])
def test_it_says_where_others_do_more(name: str) -> None:
    columns = PAGE[PAGE.index(HEADER) :].splitlines()[0].strip("|").split("|")
    column = [one.strip() for one in columns].index(name)
    assert sum("**better**" in row[column] for row in rows()) >= 3


def test_every_link_leads_somewhere() -> None:
    found = _LINK.findall(PAGE)
    assert len(found) > 30
    for name, anchor in found:
        path = DOCS / name
        assert path.is_file(), name
        assert not anchor or anchor in anchors(path.read_text(encoding="utf-8")), name


def test_its_commands_exist() -> None:
    check_commands(PAGE)
