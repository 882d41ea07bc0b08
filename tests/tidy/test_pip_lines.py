"""What a page or an error says to install can be had: our packages are on no index."""

from __future__ import annotations

import re

import pytest

from tests.tidy.source_tree import python_files, relative, text_files

_OURS = re.compile(r"pip install[^`\n]*?(?<![./\w-])logservice(?:-client)?\b(?!-)")


def from_an_index(text: str) -> list[str]:
    return _OURS.findall(text)


def test_nothing_says_to_install_our_packages_from_an_index() -> None:
    pages = [path for path in text_files() if path.suffix == ".md"]
    sources = python_files("client", "logservice", "examples")
    found = [
        relative(path)
        for path in [*pages, *sources]
        if path.name != "CHANGELOG.md" and from_an_index(path.read_text("utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("pip install 'logservice-client[delta]'", True),
        ("pip install -U logservice", True),
        ("pip install './client[delta]'", False),
        ("pip install dist/logservice_client-0.2.0-py3-none-any.whl", False),
        ("pip install zstandard", False),
    ],
)
def test_the_rule(line: str, wrong: bool) -> None:
    assert bool(from_an_index(line)) is wrong
