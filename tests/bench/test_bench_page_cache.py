"""The measurement of the page cache writes what it says, and leaves nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.storage import page_cache


def test_every_side_is_measured_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["page_cache", str(tmp_path), "--mib", "2", "--rounds", "1"])
    assert page_cache.main() == 0
    printed = capsys.readouterr().out
    assert all(side in printed for side in page_cache.SIDES)
    assert not list(tmp_path.iterdir())
