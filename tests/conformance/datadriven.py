"""The data-driven test format: commands, arguments, input, expected output.

# comment
command positional key=value key=(v1, v2)      a trailing backslash continues the line
optional input lines
----
expected output, up to a blank line; or between pairs of ---- lines if it holds blank lines
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_ARGUMENT = re.compile(r"([^\s=()]+)(?:=(\([^)]*\)|[^\s]*))?")
_LOGGER_LINE = re.compile(r"\s*(?:DEBUG|INFO|WARN|ERROR|FATAL) ")


class FormatError(ValueError):
    """The file does not follow the format."""


@dataclass(frozen=True)
class Argument:
    key: str
    values: tuple[str, ...]

    @property
    def positional(self) -> bool:
        return not self.values


@dataclass(frozen=True)
class Directive:
    """One command with what it should print. `line` is the number of the command's line, from 1."""

    line: int
    command: str
    arguments: tuple[Argument, ...]
    text: str
    input: tuple[str, ...]
    expected: tuple[str, ...]

    def values(self, key: str) -> tuple[str, ...]:
        """All values of `key=...`, empty when it is not given."""
        return tuple(
            value for argument in self.arguments if argument.key == key for value in argument.values
        )

    def value(self, key: str, default: str = "") -> str:
        found = self.values(key)
        return found[0] if found else default

    def flag(self, key: str) -> bool:
        return self.value(key) == "true"

    def positional(self) -> list[str]:
        return [argument.key for argument in self.arguments if argument.positional]

    def numbers(self) -> list[int]:
        """The positional arguments that are numbers."""
        return [int(word) for word in self.positional() if word.isdigit()]


@dataclass
class _Lines:
    lines: list[str]
    position: int = 0

    def more(self) -> bool:
        return self.position < len(self.lines)

    def next(self) -> str:
        self.position += 1
        return self.lines[self.position - 1]


def parse(text: str) -> Iterator[Directive]:
    """The directives of a file in order; raises FormatError."""
    lines = _Lines(text.split("\n"))
    while lines.more():
        start = lines.position + 1
        command_line = lines.next()
        if not command_line.strip() or command_line.lstrip().startswith("#"):
            continue
        while command_line.rstrip().endswith("\\"):
            command_line = command_line.rstrip()[:-1] + " " + lines.next()
        words = _parse_command(command_line, start)
        given: list[str] = []
        while True:
            if not lines.more():
                raise FormatError(f"line {start}: no ---- after the command")
            line = lines.next()
            if line.strip() == "----":
                break
            given.append(line)
        expected = _parse_expected(lines, start)
        yield Directive(start, words[0].key, tuple(words[1:]), command_line, tuple(given), expected)


def _parse_command(line: str, number: int) -> list[Argument]:
    words: list[Argument] = []
    rest = line.strip()
    while rest:
        match = _ARGUMENT.match(rest)
        if match is None:
            raise FormatError(f"line {number}: cannot read {rest!r}")
        key, value = match.group(1), match.group(2)
        if value is None:
            words.append(Argument(key, ()))
        elif value.startswith("("):
            inner = value[1:-1].strip()
            parts = tuple(part.strip() for part in inner.split(",")) if inner else ()
            words.append(Argument(key, parts))
        else:
            words.append(Argument(key, (value,)))
        rest = rest[match.end() :].lstrip()
    return words


def _parse_expected(lines: _Lines, start: int) -> tuple[str, ...]:
    found: list[str] = []
    if lines.more() and lines.lines[lines.position].strip() == "----":
        lines.next()
        while True:
            if not lines.more():
                raise FormatError(f"line {start}: the output block is not closed")
            line = lines.next()
            if line.strip() == "----" and lines.more() and lines.next().strip() == "----":
                return tuple(found)
            found.append(line)
    while lines.more():
        line = lines.next()
        if not line.strip():
            break
        found.append(line)
    return tuple(found)


def semantic(lines: tuple[str, ...]) -> list[str]:
    """The output that is compared: lines of a logger are left out; "ok" stands for no output."""
    kept = [line.rstrip() for line in lines if not _LOGGER_LINE.match(line)]
    return [line for line in kept if line] if kept not in ([], ["ok"]) else ["ok"]
