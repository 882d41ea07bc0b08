"""docs/operations/symptoms.md leads from everything that a cluster says of itself to a page."""

from __future__ import annotations

import re

import pytest
from logservice_wire.errors import Reason

from logservice.server.monitor.own.readiness import Code
from tests.tidy.source_tree import ROOT

OPERATIONS = ROOT / "docs" / "operations"
PAGE = (OPERATIONS / "symptoms.md").read_text(encoding="utf-8")
ALERTS = (ROOT / "deploy" / "prometheus" / "alerts.yml").read_text(encoding="utf-8")
RUNBOOKS = dict(
    re.findall(
        r"- alert: (\w+)\n(?:(?!- alert:).*\n)*? +runbook_url: \S+/docs/operations/([\w-]+\.md)",
        ALERTS,
    )
)
_LINK = re.compile(r"\]\(([^)#]*)(?:#([^)]*))?\)")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and line[2] != "-"]


def anchors(text: str) -> set[str]:
    """Those of the headings, as forges make them."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}


def rows_of(what: str) -> list[str]:
    """The rows whose first cell it is."""
    return [row for row in ROWS if row.startswith(f"| {what} |")]


def test_the_alerts_were_found() -> None:
    assert len(RUNBOOKS) == len(re.findall("- alert: ", ALERTS)) > 30


@pytest.mark.parametrize("alert", sorted(RUNBOOKS))
def test_every_alert_is_there_with_its_page(alert: str) -> None:
    (row,) = rows_of(alert)
    assert RUNBOOKS[alert] in {name for name, _ in _LINK.findall(row)}


@pytest.mark.parametrize("reason", [one.value for one in Reason])
def test_every_reason_of_an_error_is_there(reason: str) -> None:
    assert len(rows_of(f"`{reason}`")) == 1


@pytest.mark.parametrize("code", [one.value.replace("_", " ") for one in Code])
def test_every_state_of_a_store_in_top_is_there(code: str) -> None:
    """`top` shows the reasons not to be ready with spaces in their names."""
    assert any(f"`{code}`" in row.split(" | ")[0] for row in ROWS), code


@pytest.mark.parametrize("row", [row for row in ROWS if not row.endswith(" page |")])
def test_a_row_has_a_page_and_what_to_type(row: str) -> None:
    _, do, page = row.strip("| ").split(" | ")
    assert _LINK.search(page), row
    assert "`" in do, row


def test_every_link_leads_somewhere() -> None:
    found = _LINK.findall(PAGE)
    assert len(found) > 50
    for name, anchor in found:
        path = (OPERATIONS / name).resolve() if name else OPERATIONS / "symptoms.md"
        assert path.is_file(), name
        if anchor:
            assert anchor in anchors(path.read_text(encoding="utf-8")), f"{name}#{anchor}"


def test_the_first_page_names_it() -> None:
    assert "](symptoms.md)" in (OPERATIONS / "README.md").read_text(encoding="utf-8")
