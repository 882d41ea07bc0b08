"""There is one version: both distributions have it, and CHANGELOG.md describes it as the newest."""

from __future__ import annotations

import re
import tomllib

from logservice_client import __version__

from tests.tidy.source_tree import ROOT


def versions() -> set[str]:
    files = [ROOT / "pyproject.toml", ROOT / "client/pyproject.toml"]
    return {tomllib.loads(file.read_text())["project"]["version"] for file in files} | {__version__}


def test_the_version_is_the_newest_release_or_on_the_way_to_the_next() -> None:
    (version,) = versions()
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    releases = [heading for heading in headings if heading != "Unreleased"]
    newest = re.fullmatch(r"(\d+\.\d+\.\d+) \(\d{4}-\d\d-\d\d\)", releases[0])
    assert newest, releases[0]
    if version.endswith(".dev0"):
        assert numbers(version.removesuffix(".dev0")) > numbers(newest[1])
        assert headings[0] == "Unreleased"
    else:
        assert version == newest[1]


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def test_an_entry_of_the_changelog_is_one_or_two_lines() -> None:
    entries = re.findall(r"^- .*(?:\n  .*)*", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert len(entries) > 10
    assert [entry for entry in entries if entry.count("\n") > 1] == []
