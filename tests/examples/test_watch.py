"""What the demo sees of disks while stores write to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.demo import watch


def test_segments_that_go_while_they_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("1.segment", "2.segment"):
        (tmp_path / name).write_bytes(b"12345")
    is_segment = watch.is_segment

    def and_collects(path: Path) -> bool:
        found = is_segment(path)
        if path.name == "2.segment":
            path.unlink()
        return found

    monkeypatch.setattr(watch, "is_segment", and_collects)
    assert watch.bytes_on_disk(tmp_path) == 5
