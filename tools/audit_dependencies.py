"""Asks the public vulnerability database about every pinned package, and says how many it answered.

pip-audit ends with "No known vulnerabilities found" and exit code 0 also when it could look up
nothing: behind a mirror, say, or without a network. That is not an answer. So its report is counted
here, and there are three results: *vulnerable* (exit code 1), *clean* (with the number of packages
that were really looked up), and *not checked* (exit code 0, since a machine without a network can
do nothing about it, but in those words).

pip-audit lives in an environment of its own, `.venv-audit`, made on first use and kept until its
pins change.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import venv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PINS = ("build", "runtime", "spark", "dev", "proto")
_TIMEOUT_S = 300


@dataclass(slots=True)
class Findings:
    """What pip-audit's report says. `vulnerable`: ``name version: ids`` each."""

    audited: int = 0
    skipped: int = 0
    vulnerable: list[str] = field(default_factory=list)

    def verdict(self) -> tuple[str, int]:
        """One line, and the exit code."""
        total = self.audited + self.skipped
        if self.vulnerable:
            return f"VULNERABLE: {'; '.join(self.vulnerable)}", 1
        if not self.audited:
            return f"not checked: none of {total} packages could be looked up", 0
        rest = f"; {self.skipped} could NOT be looked up" if self.skipped else ""
        return f"clean: {self.audited} of {total} packages were looked up{rest}", 0


def read_report(report: Mapping[str, Any]) -> Findings:
    """Count a report in pip-audit's JSON form; a package of several pin files counts once."""
    found = Findings()
    seen: set[tuple[str, str]] = set()
    for package in report.get("dependencies", ()):
        name, version = package["name"], package.get("version", "")
        if (name, version) in seen:
            continue
        seen.add((name, version))
        if "skip_reason" in package:
            found.skipped += 1
            continue
        found.audited += 1
        ids = [one["id"] for one in package.get("vulns", ())]
        if ids:
            found.vulnerable.append(f"{name} {version}: {', '.join(ids)}")
    return found


def main() -> int:
    """Print the verdict; returns the exit code."""
    try:
        # File by file: pip-audit refuses the two versions of one package that they name.
        reports = [json.loads(_run_pip_audit(name)) for name in PINS]
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        print(f"not checked: {type(error).__name__}: {str(error)[:200]}")
        return 0
    packages = [package for report in reports for package in report.get("dependencies", ())]
    line, code = read_report({"dependencies": packages}).verdict()
    print(line)
    return code


def _run_pip_audit(pins: str) -> str:
    python = _environment()
    command = [str(python), "-m", "pip_audit", "--no-deps", "--disable-pip", "-f", "json"]
    command += ["--progress-spinner", "off", "-r", str(ROOT / "requirements" / f"{pins}.txt")]
    result = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False)
    if not result.stdout.strip():
        raise ValueError(result.stderr.decode(errors="replace").strip()[-200:])
    return result.stdout.decode()


def _environment() -> Path:
    """The interpreter that has pip-audit."""
    pins = ROOT / "requirements" / "audit.txt"
    place = ROOT / ".venv-audit"
    stamp = place / f".stamp-{hashlib.sha256(pins.read_bytes()).hexdigest()[:16]}"
    python = place / "bin" / "python"
    if not stamp.exists():
        venv.create(place, clear=True, with_pip=True)
        install = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run(
            [*install, "--no-deps", "-r", str(pins)], timeout=_TIMEOUT_S, check=True,
            stdout=sys.stderr,
        )  # fmt: skip
        stamp.touch()
    return python


if __name__ == "__main__":
    raise SystemExit(main())
