"""Pins, lock files and the needs of the distributions are in step. The tests use no network."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools import lock_dependencies, setup_environment
from tools.own_environment import ROOT

REQUIREMENTS = ROOT / "requirements"
OURS = {"logservice-client"}


def pins(name: str) -> dict[str, str]:
    """The version of each package, as people wrote it."""
    lines = (REQUIREMENTS / f"{name}.in").read_text().splitlines()
    found = {}
    for line in lines:
        if line and not line.startswith("#"):
            match = re.fullmatch(r"([A-Za-z0-9._-]+)==([0-9][\w.]*)(?:; python_version .*)?", line)
            assert match is not None, f"{name}.in: {line!r} is not an exact version"
            found[canonicalize_name(match[1])] = match[2]
    return found


def locked(name: str) -> dict[str, tuple[str, list[str]]]:
    """The version and the hashes of each package, as machines get them."""
    text = (REQUIREMENTS / f"{name}.txt").read_text().replace("\\\n", " ")
    found = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            match = re.fullmatch(
                r"([\w.-]+)==([\w.]+)(?: ; python_full_version .*?)?"
                r"((?: +--hash=sha256:[0-9a-f]{64})+) *",
                line,
            )
            assert match is not None, f"{name}.txt: {line!r}"
            found[canonicalize_name(match[1])] = (match[2], match[3].split())
    return found


@pytest.mark.parametrize("name", lock_dependencies.names())
def test_a_lock_file_is_in_step_with_its_pins(name: str) -> None:
    versions = {package: version for package, (version, _) in locked(name).items()}
    assert versions == pins(name), "run `make lock`"


def test_every_lock_file_is_made_from_pins() -> None:
    made = sorted(path.stem for path in REQUIREMENTS.glob("*.txt"))
    assert made == lock_dependencies.names()


def test_a_package_is_pinned_in_one_place() -> None:
    packages = [package for name in setup_environment.PINS for package in pins(name)]
    assert sorted(packages) == sorted(set(packages))


def asked_for() -> Iterator[tuple[str, Requirement]]:
    """Each requirement of the distributions, with its extra."""
    for path in (ROOT / "pyproject.toml", ROOT / "client" / "pyproject.toml"):
        project = tomllib.loads(path.read_text())["project"]
        for line in project["dependencies"]:
            yield "", requirement(line)
        for extra, lines in project.get("optional-dependencies", {}).items():
            for line in lines:
                yield extra, requirement(line)


def requirement(line: str) -> Requirement:
    """Without what hatchling fills in: where our other distribution is."""
    return Requirement(line.partition("{")[0])


def test_the_pins_are_what_the_distributions_ask_for() -> None:
    present = {
        package: version
        for name in setup_environment.PINS
        for package, version in pins(name).items()
    }
    runtime = pins("runtime")
    for extra, asked in asked_for():
        package = canonicalize_name(asked.name)
        if package in OURS:
            continue
        assert package in present, f"{asked} is not pinned"
        assert extra or package in runtime, f"{asked} is not in runtime.in"
        assert asked.specifier.contains(present[package]), asked


def test_what_is_built_is_built_with_pins() -> None:
    for path in (ROOT / "pyproject.toml", ROOT / "client" / "pyproject.toml"):
        for line in tomllib.loads(path.read_text())["build-system"]["requires"]:
            assert canonicalize_name(Requirement(line).name) in pins("build")


def test_pip_is_told_to_refuse_other_files(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, ...]] = []
    monkeypatch.setattr(setup_environment, "_pip", lambda *words, **_: calls.append(words))
    setup_environment._install_pins()
    from_index = [words for words in calls if "-r" in words]
    assert {Path(word).name for words in from_index for word in words if word.endswith(".txt")} == {
        f"{name}.txt" for name in setup_environment.PINS
    }
    assert all("--require-hashes" in words for words in from_index)
