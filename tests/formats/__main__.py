"""Writes the golden files that are missing: ``python -m tests.formats``.

It leaves a file that is there as it is, and the format must stay as it is, too: whoever changes the
bytes gives the format another version first.
"""

from __future__ import annotations

from tests.formats.catalogue import FORMATS
from tests.formats.form import write_golden


def main() -> None:
    """Write the missing files and print their names."""
    for one in FORMATS:
        for path, samples in one.golden().items():
            if not path.exists():
                path.parent.mkdir(exist_ok=True)
                write_golden(path, {sample.name: sample.encode(sample.value) for sample in samples})
                print(path.name)


if __name__ == "__main__":
    main()
