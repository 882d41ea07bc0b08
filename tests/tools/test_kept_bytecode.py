"""What a process starts keeps its bytecode, also where the environment forbids that."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.kept_bytecode import keep_bytecode


def test_processes_keep_their_bytecode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported.py").write_text("")
    monkeypatch.setattr(os, "environ", dict(os.environ, PYTHONDONTWRITEBYTECODE="1"))
    keep_bytecode(tmp_path)
    subprocess.run(
        [sys.executable, "-c", "import imported"], cwd=tmp_path, env=os.environ, check=True
    )
    [kept] = (tmp_path / "bytecode").rglob("imported.*.pyc")
    assert kept.stat().st_size > 0
