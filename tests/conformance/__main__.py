"""`python -m tests.conformance FILE...` runs data-driven files against the core and shows
differences.
"""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

from tests.conformance.runner import run_file


def main(arguments: list[str]) -> int:
    """Run the files; the exit code is 0 when every directive of every file matches."""
    if not arguments:
        print("usage: python -m tests.conformance FILE...", file=sys.stderr)
        return 2
    failed = 0
    for name in arguments:
        count = 0
        for result in run_file(Path(name)):
            if result is None:
                count += 1
                continue
            failed += 1
            print(f"{name}:{result.directive.line}: {result.directive.text}")
            for line in difflib.unified_diff(
                result.expected, result.actual, "expected", "actual", lineterm="", n=4
            ):
                print(f"    {line}")
            break
        else:
            print(f"{name}: {count} directives ok")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
