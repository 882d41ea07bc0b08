"""Writes the golden documents anew: ``python -m tests.documents``."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


class _Writing:
    """A plugin that makes the tests write what they find instead of comparing it."""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            item.module.WRITE = True  # type: ignore[attr-defined]


if __name__ == "__main__":
    tests = str(Path(__file__).with_name("test_documents.py"))
    sys.exit(pytest.main([tests, "-q", "-n", "0"], plugins=[_Writing()]))
