"""Runs one file: the runner of its command runs each directive, and the output is compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.conformance import confchange_commands, quorum_commands
from tests.conformance.confchange_commands import ConfchangeRunner
from tests.conformance.datadriven import Directive, parse, semantic
from tests.conformance.own_commands import OwnRunner
from tests.conformance.quorum_commands import QuorumRunner


@dataclass(frozen=True)
class Mismatch:
    """A directive whose output, without logger lines, is not the expected one."""

    directive: Directive
    actual: list[str]
    expected: list[str]


def run_file(path: Path) -> Iterator[Mismatch | None]:
    """One item per directive: None when it matches. Stops at the first mismatch."""
    quorum, confchange, interaction = QuorumRunner(), ConfchangeRunner(), OwnRunner()
    for directive in parse(path.read_text(encoding="utf-8")):
        if directive.command in quorum_commands.COMMANDS:
            printed = quorum.run(directive)
        elif directive.command in confchange_commands.COMMANDS:
            printed = confchange.run(directive)
        else:
            printed = interaction.run(directive)
        actual = semantic(tuple(printed.split("\n")))
        expected = semantic(directive.expected)
        if actual != expected:
            yield Mismatch(directive, actual, expected)
            return
        yield None
