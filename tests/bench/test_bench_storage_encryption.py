"""The bench of encryption measures both sides and leaves nothing behind."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.storage import encryption


def test_both_sides_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", str(tmp_path), "--rounds", "2", "--mib", "1"])
    monkeypatch.setattr(encryption, "tune_interpreter", lambda: None)
    encryption.main()
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| 10 x")]
    assert len(rows) == 9
    assert list(tmp_path.iterdir()) == []


def test_only_one_side_encrypts(tmp_path: Path) -> None:
    ring = encryption.Keys("k", {"k": bytes(32)})
    for name, keys in ((encryption.PLAIN, None), (encryption.ENCRYPTED, ring)):
        side = encryption.Side.make(str(tmp_path / name), keys)
        side.groups("4 KiB", 3)
        assert side.read("4 KiB", 30) > 0
        assert side.db.encrypts == (keys is not None)
        side.close()
