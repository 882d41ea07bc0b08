"""The set-up script: what it asks for, and when it does nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import setup_environment


def test_without_root_the_exact_line_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        setup_environment, "missing_system_packages", lambda: ["python3-venv", "g++"]
    )
    monkeypatch.setattr(setup_environment.os, "geteuid", lambda: 1000)
    assert not setup_environment._provide_system_packages()
    expected = "apt-get update && apt-get install -y --no-install-recommends python3-venv g++\n"
    assert expected in capsys.readouterr().out


def test_java_can_be_waived(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup_environment.shutil, "which", lambda name: None)
    monkeypatch.delenv("WITHOUT_JAVA", raising=False)
    assert "default-jre-headless" in setup_environment.missing_system_packages()
    monkeypatch.setenv("WITHOUT_JAVA", "1")
    assert "default-jre-headless" not in setup_environment.missing_system_packages()


@pytest.mark.parametrize(
    ("version", "machine", "compiled"),
    [
        ((3, 12), "x86_64", False),
        ((3, 13), "x86_64", False),
        ((3, 13), "aarch64", False),
        ((3, 11), "aarch64", True),
    ],
)
def test_a_compiler_is_wanted_where_plyvel_has_no_wheel(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, int], machine: str, compiled: bool
) -> None:
    monkeypatch.setattr(setup_environment.sys, "version_info", (*version, 0, "final", 0))
    monkeypatch.setattr(setup_environment.platform, "machine", lambda: machine)
    monkeypatch.setattr(setup_environment.shutil, "which", lambda name: None)
    assert ("g++" in setup_environment.missing_system_packages()) == compiled


def test_an_environment_that_is_up_to_date_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stamp = tmp_path / "stamp"
    stamp.write_text(setup_environment._wanted_stamp() + "\n")
    monkeypatch.setattr(setup_environment, "STAMP", stamp)

    def fail(*arguments: str) -> None:
        raise AssertionError(arguments)

    monkeypatch.setattr(setup_environment, "_pip", fail)
    monkeypatch.setattr(setup_environment, "_create_environment", fail)
    assert setup_environment.main() == 0
