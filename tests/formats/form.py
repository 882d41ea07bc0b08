"""Form: what a golden file holds, and how a format is described for it.

A golden file has the name of a format and its version. It holds named samples, with the bytes in
hexadecimal. It is never changed: bytes that were written once have to be read for ever, or refused
by their version. Whoever changes a format gives it another version, and so another file.

What is written only from a later cluster version on (a new version of a format, or a new command of
an old one) is in a file of its own, which says that cluster version, too. Such a file is complete,
and never changed any more, once that cluster version was released.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from logservice import versions

GOLDEN = Path(__file__).parent / "golden"
_LINE_BYTES = 32


def same(value: Any) -> Any:
    """Compare the value itself."""
    return value


@dataclass(frozen=True)
class Sample:
    """A sample: `encode(value)` gives the bytes, and `decode` gives `value` back. `show` turns both
    values into what is compared. `grows`: a version byte and a MessagePack map, whose readers skip
    keys that they do not know. So what is written may have more keys than the golden bytes.
    `since`: the cluster version from which on such bytes are written.
    """

    name: str
    value: Any
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]
    show: Callable[[Any], Any] = same
    grows: bool = False
    since: int = versions.FIRST


@dataclass(frozen=True)
class Format:
    """A format and its samples.

    constant: ``module:name`` of the version in the product; empty when the bytes carry none, or one
    that depends on the cluster version. version: the value of that constant, or what is written at
    the first cluster version. document: the file that describes the bytes, from the root of the
    repository. error: what `decode` raises for another version; None where it answers None. newer:
    what it raises for bytes of a newer program, where that is another error.
    """

    name: str
    version: int
    constant: str
    document: str
    samples: tuple[Sample, ...]
    error: type[Exception] | None = None
    newer: type[Exception] | None = None

    def written(self, cluster_version: int) -> int:
        """The version of the format that is written at a cluster version."""
        return versions.WRITTEN.get(self.name, {}).get(cluster_version, self.version)

    @property
    def readable(self) -> frozenset[int]:
        """The versions that are read."""
        known = range(versions.FIRST, versions.NEWEST + 1)
        return frozenset(self.written(version) for version in known)

    def golden(self) -> dict[Path, list[Sample]]:
        """The golden files of what is written now, with their samples."""
        found: dict[Path, list[Sample]] = {}
        for sample in self.samples:
            found.setdefault(self.path(sample), []).append(sample)
        return found

    def path(self, sample: Sample) -> Path:
        """The golden file of a sample."""
        since = "" if sample.since == versions.FIRST else f"-c{sample.since}"
        return GOLDEN / f"{self.name}-v{self.written(sample.since)}{since}.hex"


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
