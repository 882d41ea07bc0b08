"""The bench of encryption measures both sides and leaves nothing behind."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench import encryption_bench


def test_both_sides_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", str(tmp_path), "--rounds", "2", "--mib", "1"])
    monkeypatch.setattr(encryption_bench, "tune_interpreter", lambda: None)
    encryption_bench.main()
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| 10 x")]
    assert len(rows) == 9
    assert list(tmp_path.iterdir()) == []


def test_only_one_side_encrypts(tmp_path: Path) -> None:
    ring = encryption_bench.Keys("k", {"k": bytes(32)})
    for name, keys in ((encryption_bench.PLAIN, None), (encryption_bench.ENCRYPTED, ring)):
        side = encryption_bench.Side.make(str(tmp_path / name), keys)
        side.groups("4 KiB", 3)
        assert side.read("4 KiB", 30) > 0
        assert side.db.encrypts == (keys is not None)
        side.close()
