"""Asks the public vulnerability databases about every pinned package, and counts the answers.

pip-audit ends with "No known vulnerabilities found" and exit code 0 also when it could look up
nothing: behind a mirror, say, or without a network. That is not an answer. So this tool counts what
its report says, and there are three results: *vulnerable* (exit code 1), *clean* (with the number
of packages that were really looked up), and *not checked* (exit code 3, with what each database
said instead). A machine that cannot reach the databases can do nothing about the last. Where that
is known, ``--allow-unchecked`` makes it exit code 0, with the same words.

Two databases are asked: the package index's own (its JSON API, which mirrors seldom have), and OSV
(api.osv.dev) about the packages that the first does not know.

pip-audit lives in an environment of its own (`own_environment`).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tools.own_environment import ROOT, own_environment

PINS = ("build", "runtime", "codecs", "spark", "otel", "bench", "dev", "proto")
DATABASES = ("pypi", "osv")
NOT_CHECKED = 3
"""Exit code: nothing was found because nothing was looked up."""

_ALLOW = "--allow-unchecked"
_TIMEOUT_S = 300


class NotAnswered(ValueError):
    """A database could not be asked, or what came is no report."""


@dataclass(slots=True)
class Findings:
    """What the databases said.

    vulnerable: a line ``name version: ids`` for each. audited: packages that a database knows.
    skipped: packages that none knows. silence: by database, why it did not answer.
    """

    audited: set[str] = field(default_factory=set)
    skipped: set[str] = field(default_factory=set)
    vulnerable: list[str] = field(default_factory=list)
    silence: dict[str, str] = field(default_factory=dict)

    def take(self, packages: Iterable[Mapping[str, Any]], database: str) -> None:
        """Take in a report in pip-audit's JSON form."""
        for package in packages:
            name = package["name"]
            if "skip_reason" in package:
                self.silence.setdefault(database, package["skip_reason"])
                self.skipped.add(name)
                continue
            one = f"{name} {package['version']}"
            ids = [found["id"] for found in package.get("vulns", ())]
            if ids and one not in self.audited:
                self.vulnerable.append(f"{one}: {', '.join(ids)}")
            self.audited.add(one)

    def verdict(self) -> tuple[str, int]:
        """One line, and the exit code."""
        known = {one.partition(" ")[0] for one in self.audited}
        left = self.skipped - known
        total = len(self.audited) + len(left)
        why = "".join(f"; {name}: {reason}" for name, reason in self.silence.items())
        if self.vulnerable:
            return f"VULNERABLE: {'; '.join(self.vulnerable)}", 1
        if not self.audited:
            return f"not checked: none of {total} packages could be looked up{why}", NOT_CHECKED
        rest = f"; {len(left)} could NOT be looked up{why}" if left else ""
        return f"clean: {len(self.audited)} of {total} packages were looked up{rest}", 0


def main(arguments: Sequence[str] = ()) -> int:
    """Print the verdict; returns the exit code."""
    if set(arguments) - {_ALLOW}:
        print(f"usage: audit_dependencies [{_ALLOW}]", file=sys.stderr)
        return 2
    found = Findings()
    for database in DATABASES:
        # File by file: pip-audit refuses the two versions of one package that they name.
        for name in PINS:
            try:
                report = json.loads(_run_pip_audit(name, database))
                found.take(report["dependencies"], database)
            except (
                OSError,
                subprocess.SubprocessError,
                ValueError,
                KeyError,
                NotAnswered,
            ) as error:
                found.silence[database] = f"{type(error).__name__}: {str(error)[-200:]}"
                break
        else:
            if not found.skipped:
                break  # every package was known here
    line, code = found.verdict()
    print(line)
    return 0 if code == NOT_CHECKED and _ALLOW in arguments else code


def _run_pip_audit(pins: str, database: str) -> str:
    command = [str(own_environment("audit") / "python"), "-m", "pip_audit", "-s", database]
    command += ["--no-deps", "--disable-pip", "-f", "json", "--progress-spinner", "off"]
    command += ["--timeout", "10", "-r", str(ROOT / "requirements" / f"{pins}.txt")]
    result = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False)
    if not result.stdout.strip():
        said = result.stderr.decode(errors="replace").strip().splitlines()
        raise NotAnswered(said[-1] if said else f"it ended with {result.returncode}")
    return result.stdout.decode()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
