"""The releases that upgrades begin at."""

from __future__ import annotations

import re

from tests.upgrade.releases import RELEASES, ROOT


def test_the_newest_release_is_tried() -> None:
    """A release is added with its commit by the change that comes behind it."""
    (version,) = re.findall(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.M)
    released = re.findall(r"^## (\d+\.\d+\.\d+) ", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert set(RELEASES) <= set(released)
    if version.endswith(".dev0"):
        assert released[0] in RELEASES
