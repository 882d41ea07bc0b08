"""docs/commands.md is what the programs say, and the programs say it in one voice."""

from __future__ import annotations

import re
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from logservice.cli.logctl import logctl
from logservice.cli.main import logservice
from logservice.cli.shell.lazy_group import LazyGroup
from tools import list_commands

COMMANDS = {
    path: command
    for program, group in list_commands.PROGRAMS.items()
    for path, command in list_commands.commands(group, program)
}


def test_the_page_is_what_the_programs_say() -> None:
    page = list_commands.DOCUMENT.read_text(encoding="utf-8")
    assert page == list_commands.document(), "run `make commands`"


@pytest.mark.parametrize("program", ["logctl", "logservice"])
def test_the_line_in_the_list_is_the_first_sentence_of_the_command(program: str) -> None:
    """A lazy group has the line twice, so that it need not import the command for its list."""
    group = list_commands.PROGRAMS[program]
    assert isinstance(group, LazyGroup)
    for rows in group.sections.values():
        for name, (_, line) in rows.items():
            assert first_line(COMMANDS[f"{program} {name}"]) == line, name


def test_first_lines_are_whole_sentences() -> None:
    """Each begins with a verb in the imperative, so with a capital, ends with a full stop, and is
    short enough that no list cuts it.
    """
    for path, command in COMMANDS.items():
        line = first_line(command)
        assert line[0].isupper(), path
        assert line.endswith("."), path
        assert line.split()[0] not in {"The", "A", "All", "What", "Which", "Every", "For"}, path
        if isinstance(command, click.Group):
            shown = list_commands.help_of(command, path)
            assert not re.search(r"^  [a-z][a-z-]* .*\.\.\.$", shown, re.MULTILINE), path


def test_every_command_of_logctl_stands_in_one_section() -> None:
    assert isinstance(logctl, LazyGroup)
    assert list(logctl.sections) == ["Records", "Shards", "Stores", "Cluster", "Looking"]
    names = [name for rows in logctl.sections.values() for name in rows]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("module", ["logservice.cli.logctl", "logservice.cli.main"])
def test_a_program_is_a_module_too(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("logctl" if "logctl" in module else "logservice")


def first_line(command: click.Command) -> str:
    assert command.help is not None
    return command.help.splitlines()[0]


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("strores", "Did you mean `logctl stores`, or `logctl store`"),
        ("drain store-1", "Did you mean `logctl stores drain`, or `logctl services drain`?"),
        ("stores dran store-1", "drain"),
        ("stores drain --resaon x store-1", "--reason"),
        ("--endpoint h:1 stores", "--endpoints"),
        ("zzzzzzzz", "See `logctl --help`."),
    ],
)
def test_a_slip_of_the_pen_is_answered_with_what_was_meant(words: str, meant: str) -> None:
    said = CliRunner().invoke(logctl, words.split(), prog_name="logctl")
    assert said.exit_code == 2
    assert meant in said.output


def test_a_name_that_is_no_command() -> None:
    assert logservice.get_command(click.Context(logservice), "nothing") is None
