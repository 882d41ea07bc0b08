"""THREAT_MODEL.md names a test for every control, and they exist."""

from __future__ import annotations

import re

from tests.tidy.source_tree import ROOT


def test_every_control_has_a_test_that_exists() -> None:
    text = (ROOT / "THREAT_MODEL.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (?!threat|actor|-)([^|]+)\|([^|]+)\|([^|]+)\|$", text, re.MULTILINE)
    controls = [row for row in rows if "tests/" in row[2]]
    assert len(controls) >= 30
    for threat, _, tests in controls:
        files = re.findall(r"`(tests/[\w/.]+)`", tests)
        assert files, threat
        assert [name for name in files if not (ROOT / name).is_file()] == [], threat
    # Only the table of actors has rows without tests.
    assert len(rows) - len(controls) == 7
