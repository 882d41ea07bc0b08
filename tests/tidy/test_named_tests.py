"""Every test that a document names as `file::test` exists."""

from __future__ import annotations

import re

import pytest

from tests.tidy.source_tree import ROOT
from tests.tidy.test_named_files import documents

_NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
NAMED = sorted({pair for page in documents() for pair in _NAMED.findall(page.read_text("utf-8"))})


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_every_named_test_exists(file: str, test: str) -> None:
    assert re.search(rf"^ *(?:async )?def {test}\(", (ROOT / file).read_text("utf-8"), re.MULTILINE)


def test_the_documents_name_tests() -> None:
    assert len(NAMED) > 15
