"""Form: what a golden file holds, and how a format is described for it.

A golden file has the name of a format and its version. It holds named samples, with the bytes in
hexadecimal. It is never changed: bytes that were written once have to be read for ever, or refused
by their version. Whoever changes a format gives it another version, and so another file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent / "golden"
_LINE_BYTES = 32


def same(value: Any) -> Any:
    """Compare the value itself."""
    return value


@dataclass(frozen=True)
class Sample:
    """A sample: `encode(value)` gives the bytes, and `decode` gives `value` back. `show` turns both
    values into what is compared.
    """

    name: str
    value: Any
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]
    show: Callable[[Any], Any] = same


@dataclass(frozen=True)
class Format:
    """A format and its samples.

    constant: ``module:name`` of the version in the product; empty when the bytes carry none.
    version: the value of that constant. document: the file that describes the bytes, from the root
    of the repository. error: what `decode` raises for another version; None where it answers None.
    """

    name: str
    version: int
    constant: str
    document: str
    samples: tuple[Sample, ...]
    error: type[Exception] | None = None

    @property
    def path(self) -> Path:
        """The golden file of the present version."""
        return GOLDEN / f"{self.name}-v{self.version}.hex"


def write_golden(path: Path, samples: Mapping[str, bytes]) -> None:
    """Write a new golden file."""
    lines = []
    for name, data in samples.items():
        lines.append(f"= {name}")
        lines += [
            data[at : at + _LINE_BYTES].hex(" ", 8) for at in range(0, len(data), _LINE_BYTES)
        ]
    path.write_text("\n".join(lines) + "\n")


def read_golden(path: Path) -> dict[str, bytes]:
    """The samples of a file by their names."""
    found: dict[str, bytes] = {}
    name = ""
    for line in path.read_text().splitlines():
        if line.startswith("= "):
            name = line[2:]
            found[name] = b""
        else:
            found[name] += bytes.fromhex(line)
    return found
