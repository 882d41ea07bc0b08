"""page_commands: what a page of the documentation tells its reader to type.

Blocks marked ``bash`` are run by tests, in their order. Blocks marked ``console`` are not: they
begin with `NOT_RUN` and the reason, where the reader sees it. Commands also stand in sentences,
between backticks; there they may be without their arguments.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NOT_RUN: Final = "# Not run by the tests: "
"""How a block that no test runs begins; the reason follows."""

SENTENCE: Final = "sentence"
_FENCE: Final = re.compile(r"^( *)```(\S*)")
_TYPED: Final = re.compile(
    r"^ *(logctl|logservice|logservice-(?:replay|table)|tool|spark-submit|pg_basebackup|make|pip"
    r"|docker|kubectl|git|python3?|systemctl|curl) ",
    re.MULTILINE,
)
_PROGRAM: Final = re.compile(
    r"(?:^|[;&|(!]|\$ |\b(?:do|then|else|until|while|if|time|exec)\b) *(?:\w+=\S+ +)*"
    r"(?P<command>(?:logctl|logservice) .*)"
)
_SPAN: Final = re.compile(r"(?<!`)`((?:logctl|logservice) [^`]+)`(?!`)")
_OPERATORS: Final = frozenset(";|&<>()")
_STANDS_FOR: Final = "1"
"""What is given to the parser in the place of something that the reader or the shell puts in."""


@dataclass(frozen=True)
class Block:
    """A fenced block; `line` is that of its first fence."""

    mark: str
    line: int
    lines: tuple[str, ...]

    def has_commands(self) -> bool:
        """Whether a reader would type a line of it."""
        return _TYPED.search("\n".join(self.lines)) is not None


@dataclass(frozen=True)
class Command:
    """A command of one of the two programs; `placeholders`: the words that are put in."""

    words: tuple[str, ...]
    line: int
    where: str
    placeholders: frozenset[str]


def page_commands(page: Path) -> list[str]:
    """The page's ``bash`` blocks, without the indentation of a list."""
    return [
        "".join(f"{line}\n" for line in one.lines) for one in blocks(page) if one.mark == "bash"
    ]


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of the page, without the indentation of a list."""
    found: list[Block] = []
    mark, begun, indent, inside = "", 0, "", None
    for number, line in enumerate(page.read_text().splitlines(), 1):
        fence = _FENCE.match(line)
        if inside is not None and not fence:
            inside.append(line.removeprefix(indent))
        elif inside is not None:
            found.append(Block(mark, begun, tuple(inside)))
            inside = None
        elif fence:
            indent, mark = fence.groups()
            begun, inside = number, []
    return found


def commands(page: Path) -> Iterator[Command]:
    """The commands of the two programs on the page."""
    fenced: set[int] = set()
    for block in blocks(page):
        fenced.update(range(block.line, block.line + len(block.lines) + 2))
        if block.mark not in ("bash", "console", ""):
            continue
        text = re.sub(r"\\\n *", " ", "\n".join(block.lines))
        for line in text.splitlines():
            line = re.sub(r"(^|\s)#.*", "", line)
            rest: str | None = line
            while rest and (start := _PROGRAM.search(rest)):
                yield _command(start["command"], block.line, "block")
                rest = start["command"].partition(" ")[2]
    lines = page.read_text().splitlines()
    prose = "\n".join("" if number in fenced else line for number, line in enumerate(lines, 1))
    for span in _SPAN.finditer(prose):
        at = prose.count("\n", 0, span.start()) + 1
        yield _command(" ".join(span.group(1).split()), at, SENTENCE)


def _command(text: str, line: int, where: str) -> Command:
    text = re.sub(r"\$\([^()]*\)|\$\{[^}]*\}|<[a-z][a-z -]*>", "$X", text)
    words: list[str] = []
    placeholders: set[str] = set()
    for word in _words(text):
        if set(word) <= _OPERATORS or word.startswith("[") or "…" in word or word == "...":
            break
        if re.fullmatch(r"[A-Z][A-Z0-9_-]*", word) or "$" in word:
            placeholders.add(word if "$" not in word else _STANDS_FOR)
            word = word if "$" not in word else _STANDS_FOR
        words.append(word)
    return Command(tuple(words), line, where, frozenset(placeholders))


def _words(text: str) -> list[str]:
    """The words up to the end, or to a quote that the line began before them or ends after it."""
    while True:
        lexer = shlex.shlex(text, posix=True, punctuation_chars="".join(_OPERATORS))
        lexer.whitespace_split, lexer.commenters = True, ""
        try:
            return list(lexer)
        except ValueError:
            text = text[: max(text.rfind("'"), text.rfind('"'))]
