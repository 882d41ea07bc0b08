"""chain: the form of the audit log's lines, and how a file is told from a doctored one.

Theory of operation. Each line is one JSON object with sorted keys and no spaces. Every line has a
number (`seq`, from 1 without gaps, across files) and a `hash`: SHA-256 over the hash of the
previous line and this line without its own hash. So a changed, removed, added or moved line breaks
the chain at that place, inside its file or at the seam to the next one.

One directory holds two trails. Each trail has its own files, numbers and chain (`Trail`).

Every file begins with a statement, which names the file itself and the oldest file that was kept.
The oldest file that the last statement names must exist: only rotation removes files, and it writes
the statement first.

A chain cannot show that its end was cut off, or that all of it was made anew. An operator who needs
to know that writes down the last number and hash now and then, somewhere else, and gives them to
`verify` as anchors. One of the anchors must be met; otherwise nothing links the files to what was
known. A trail whose writer has stopped in order ends with a line that says so (`Verdict.closed`).

A crash may leave an unfinished last line. The store that starts again opens a new file, whose first
line says how many bytes of such a line the previous file ends with. Any other bytes behind the last
whole line are damage.
"""

from __future__ import annotations

import enum
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

FIRST_HASH: Final = "0" * 64
OPENED: Final = "audit.opened"
CONTINUED: Final = "audit.continued"
CLOSED: Final = "audit.closed"
STATEMENTS: Final = (OPENED, CONTINUED)

Line = dict[str, object]
"""The fields of a line of the audit log."""

_FILE: Final = re.compile(r"(audit|calls)-(\d{8})\.jsonl")
_LINE_BYTES_MAX: Final = 64 * 1024


class Trail(enum.StrEnum):
    """Which trail; the value is what the names of its files begin with."""

    ADMINISTRATION = "audit"
    CALLS = "calls"


@dataclass(frozen=True, slots=True)
class Anchor:
    """A line whose number and hash were written down elsewhere."""

    trail: Trail
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
    oldest: int = 0
    """The oldest file that was kept, as the newest statement says; 0 before any."""
    closed: bool = False
    """The last line says that the writer stopped in order."""
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


def files_of(directory: Path, trail: Trail) -> list[Path]:
    """The files of a trail in a directory, oldest first."""
    found = []
    for path in directory.iterdir():
        match = _FILE.fullmatch(path.name)
        if match is not None and match[1] == trail:
            found.append(path)
    return sorted(found)


def file_name(trail: Trail, number: int) -> str:
    """The name of the `number`-th file."""
    return f"{trail}-{number:08}.jsonl"


def file_number(path: Path) -> int:
    """Inverse of `file_name`."""
    match = _FILE.fullmatch(path.name)
    assert match is not None  # `files_of` found it
    return int(match[2])


def verify(directory: Path, trail: Trail, anchors: Iterable[Anchor] = ()) -> Verdict:
    """Walk all files of a trail. Raises OSError when one cannot be read."""
    verdict = Verdict()
    wanted = {anchor.seq: anchor.hash for anchor in anchors if anchor.trail is trail}
    known = len(wanted)
    torn = 0
    files = files_of(directory, trail)
    for before, path in zip([None, *files], files, strict=False):
        verdict.files += 1
        if before is not None and file_number(path) != file_number(before) + 1:
            verdict.damages.append(f"{path.name}: a file before it is missing")
        torn = _verify_file(path, torn, verdict, wanted)
    verdict.torn_bytes = torn
    if not verdict.lines:
        verdict.damages.append(f"{directory} holds no line of the trail {trail.name.lower()}")
    elif file_number(files[0]) > verdict.oldest:
        verdict.damages.append(
            f"{files[0].name}: files before it were removed; rotation had kept the trail"
            f" from {file_name(trail, verdict.oldest)} on"
        )
    missed = sorted(seq for seq in wanted if seq >= verdict.first_seq)
    for seq in missed:
        verdict.damages.append(f"line {seq} is known from elsewhere and not there")
    if known and len(wanted) == known and not missed:
        verdict.damages.append(
            f"line {max(wanted)} is known from elsewhere, and what is there begins behind it:"
            " nothing links the two"
        )
    return verdict


def _verify_file(path: Path, torn: int, verdict: Verdict, wanted: dict[int, str]) -> int:
    """Check one file, and return the bytes behind its last whole line. `torn`: those of the file
    before.
    """
    data = path.read_bytes()
    position = 0
    while True:
        end = data.find(b"\n", position)
        if end < 0:
            return len(data) - position
        line, where = data[position:end], f"{path.name}:{position}"
        opened = _verify_line(line, where, verdict, wanted)
        if position == 0:
            _check_statement(line, path, where, verdict)
        if position == 0 and torn and opened != torn:
            verdict.damages.append(f"{where}: {torn} bytes before it belong to no line")
        position = end + 1


def _verify_line(line: bytes, where: str, verdict: Verdict, wanted: dict[int, str]) -> int:
    """Check one line and take it into the verdict; returns the torn bytes that the line states."""
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
        if seq != 1 and where.partition(":")[0] in _FIRST_FILES:
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
    verdict.closed = found.get("what") == CLOSED
    oldest = found.get("oldest")
    if found.get("what") in STATEMENTS and isinstance(oldest, int):
        verdict.oldest = oldest
    torn = found.get("torn_bytes", 0)
    return torn if found.get("what") == OPENED and isinstance(torn, int) else 0


def _check_statement(line: bytes, path: Path, where: str, verdict: Verdict) -> None:
    try:
        found = parse(line)
    except ValueError:
        return  # said already
    if found.get("what") not in STATEMENTS or found.get("file") != file_number(path):
        verdict.damages.append(f"{where}: no file of this trail begins so")


def parse(line: bytes) -> dict[str, object]:
    """The fields of a line without its newline. Raises ValueError."""
    if len(line) > _LINE_BYTES_MAX:
        raise ValueError("a line is too long")
    found = json.loads(line)
    if not isinstance(found, dict):
        raise ValueError("no object")
    return found


_FIRST_FILES: Final = frozenset(file_name(trail, 1) for trail in Trail)


def _canonical(fields: Mapping[str, object]) -> str:
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _hash(before: str, body: str) -> str:
    return hashlib.sha256(f"{before}\n{body}".encode()).hexdigest()
