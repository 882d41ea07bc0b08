"""audit_chain: the form of the audit log's lines, and how a file is told from a doctored one.

Theory of operation. One JSON object per line, keys sorted, no spaces. Every line has a number
(`seq`, from 1 without gaps, across files) and a `hash`: SHA-256 over the hash of the line before
and the line without its own. So a changed, removed, added or moved line breaks the chain from there
on, in its file or at the seam to the next one.

What a chain cannot show is that its end was cut off. Whoever needs that writes down the last number
and hash now and then, elsewhere, and gives it to `verify` as an anchor. When old files were removed
by rotation the chain begins later; it then rests on its first line.

A crash may leave an unfinished last line. The store that starts again opens a new file, whose first
line says how many bytes the one before is left with; anything else behind the last whole line is
damage.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

FIRST_HASH: Final = "0" * 64
OPENED: Final = "audit.opened"
_FILE: Final = re.compile(r"audit-(\d{8})\.jsonl")
_LINE_BYTES_MAX: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Anchor:
    """A line that is known from elsewhere."""

    seq: int
    hash: str


@dataclass(slots=True)
class Verdict:
    """What `verify` found. `damages`: where the chain is broken; empty when it is whole."""

    files: int = 0
    lines: int = 0
    first_seq: int = 0
    last_seq: int = 0
    last_hash: str = FIRST_HASH
    torn_bytes: int = 0
    damages: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """The chain is whole."""
        return not self.damages


def seal(fields: Mapping[str, object], seq: int, before: str) -> tuple[bytes, str]:
    """A line with its newline, and its hash. `before`: the hash of the line before."""
    body = _canonical({**fields, "seq": seq})
    found = _hash(before, body)
    return _canonical({**fields, "seq": seq, "hash": found}).encode() + b"\n", found


def files_of(directory: Path) -> list[Path]:
    """The audit files in a directory, oldest first."""
    return sorted(path for path in directory.iterdir() if _FILE.fullmatch(path.name))


def file_name(number: int) -> str:
    """Of the `number`-th file."""
    return f"audit-{number:08}.jsonl"


def file_number(path: Path) -> int:
    """Inverse of `file_name`."""
    match = _FILE.fullmatch(path.name)
    assert match is not None  # `files_of` found it
    return int(match[1])


def verify(directory: Path, anchors: Iterable[Anchor] = ()) -> Verdict:
    """Walk all files. Raises OSError when one cannot be read."""
    verdict = Verdict()
    wanted = {anchor.seq: anchor.hash for anchor in anchors}
    torn = 0
    number = 0
    for path in files_of(directory):
        verdict.files += 1
        if number and file_number(path) != number + 1:
            verdict.damages.append(f"{path.name}: a file before it is missing")
        number = file_number(path)
        torn = _verify_file(path, torn, verdict, wanted)
    verdict.torn_bytes = torn
    for seq in sorted(wanted):
        if seq >= verdict.first_seq:
            verdict.damages.append(f"line {seq} is known from elsewhere and not there")
    return verdict


def _verify_file(path: Path, torn: int, verdict: Verdict, wanted: dict[int, str]) -> int:
    """`torn`: bytes behind the last whole line of the file before; returns those of this one."""
    data = path.read_bytes()
    position = 0
    while True:
        end = data.find(b"\n", position)
        if end < 0:
            return len(data) - position
        line, where = data[position:end], f"{path.name}:{position}"
        opened = _verify_line(line, where, verdict, wanted)
        if position == 0 and torn and opened != torn:
            verdict.damages.append(f"{where}: {torn} bytes before it belong to no line")
        position = end + 1


def _verify_line(line: bytes, where: str, verdict: Verdict, wanted: dict[int, str]) -> int:
    """Check one line and take it into the verdict; returns the torn bytes that it tells of."""
    verdict.lines += 1
    try:
        found = parse(line)
        seq, shown = found["seq"], found["hash"]
    except (ValueError, KeyError):
        verdict.damages.append(f"{where}: no line of an audit log")
        return 0
    first = verdict.first_seq == 0
    if not isinstance(seq, int) or not isinstance(shown, str):
        verdict.damages.append(f"{where}: no line of an audit log")
        return 0
    if first:
        verdict.first_seq = seq
        before = FIRST_HASH if seq == 1 else None
        if seq != 1 and where.startswith(file_name(1)):
            verdict.damages.append(f"{where}: the first file begins with line {seq}")
    else:
        before = verdict.last_hash
        if seq != verdict.last_seq + 1:
            verdict.damages.append(f"{where}: line {seq} follows line {verdict.last_seq}")
    body = _canonical({key: value for key, value in found.items() if key != "hash"})
    # The oldest line of a rotated log may have no predecessor to be checked against.
    if before is not None and _hash(before, body) != shown:
        verdict.damages.append(f"{where}: line {seq} does not continue the chain")
    if _canonical(found).encode() != line:
        verdict.damages.append(f"{where}: line {seq} is not as it was written")
    if seq in wanted and wanted.pop(seq) != shown:
        verdict.damages.append(f"{where}: line {seq} is not the one known from elsewhere")
    verdict.last_seq, verdict.last_hash = seq, shown
    torn = found.get("torn_bytes", 0)
    return torn if found.get("what") == OPENED and isinstance(torn, int) else 0


def parse(line: bytes) -> dict[str, object]:
    """The fields of a line without its newline. Raises ValueError."""
    if len(line) > _LINE_BYTES_MAX:
        raise ValueError("a line is too long")
    found = json.loads(line)
    if not isinstance(found, dict):
        raise ValueError("no object")
    return found


def _canonical(fields: Mapping[str, object]) -> str:
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _hash(before: str, body: str) -> str:
    return hashlib.sha256(f"{before}\n{body}".encode()).hexdigest()
