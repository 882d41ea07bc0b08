"""Every command explains itself with examples that the program takes; completion works."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from logservice.cli.logctl import logctl
from logservice.cli.main import logservice
from logservice.cli.shell.examples import EXAMPLES
from tests.cli.test_logctl_output import leaves

COMMANDS = dict([*leaves(logctl, "logctl"), *leaves(logservice, "logservice")])
LINES = [(path, line) for path, lines in EXAMPLES.items() for line in lines]


def test_no_example_of_what_is_gone() -> None:
    assert set(EXAMPLES) == set(COMMANDS)


@pytest.mark.parametrize("path", sorted(COMMANDS))
def test_help(path: str) -> None:
    program, *words = path.split()
    group = logctl if program == "logctl" else logservice
    shown = CliRunner().invoke(group, [*words, "--help"], prog_name=program).output
    assert "Examples:" in shown
    assert all(line in shown.replace("\n    ", " ") for line in EXAMPLES[path])
    assert COMMANDS[path].help
    for option in COMMANDS[path].params:
        if isinstance(option, click.Option):
            assert option.help or option.name in {"name", "store_id"}, option.name


@pytest.mark.parametrize(("path", "line"), LINES)
def test_the_program_takes_its_examples(
    path: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data" / "audit").mkdir(parents=True)
    (tmp_path / "data" / "RECOVERED").touch()
    monkeypatch.chdir(tmp_path)
    words = shlex.split(line.partition(" < ")[0].partition(" > ")[0])
    command: click.Command = logctl if words[0] == "logctl" else logservice
    context = command.make_context(words[0], list(words[1:]), resilient_parsing=True)
    rest = [*context._protected_args, *context.args]
    while isinstance(command, click.Group):
        found = command.get_command(context, rest[0])
        assert found is not None
        command = found
        # The line is really parsed, and not run.
        context = command.make_context(rest[0], rest[1:], parent=context)
        rest = [*context._protected_args, *context.args]
    assert path.endswith(command.name or "")


@pytest.mark.parametrize("program", ["logctl", "logservice"])
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(program: str, shell: str) -> None:
    group = logctl if program == "logctl" else logservice
    shown = CliRunner().invoke(group, ["--completion", shell], prog_name=program)
    assert shown.exit_code == 0
    assert f"_{program.upper()}_COMPLETE" in shown.output


@pytest.mark.processes
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes(tmp_path: Path) -> None:
    program = tmp_path / "logctl"
    code = "from logservice.cli.logctl import main; main()"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -W ignore -c "{code}" "$@"\n')
    program.chmod(0o755)
    script = (
        "source <(logctl --completion bash); COMP_WORDS=(logctl doc); COMP_CWORD=1;"
        ' _logctl_completion logctl; echo "${COMPREPLY[@]}"'
    )
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PATH": path, "PYTHONPATH": ":".join(sys.path)},
    )
    assert done.stdout.split() == ["doctor"]


@pytest.mark.parametrize(
    "words", [[], *({tuple(path.split()[:2]) for path in COMMANDS if len(path.split()) > 2})]
)
def test_help_of_groups_shows_no_marks(words: tuple[str, ...]) -> None:
    """Click has a mark for a paragraph that stays as it is. In a raw string it is only letters."""
    for group in (logctl, logservice):
        if not words or words[0] == group.name:
            shown = CliRunner().invoke(group, [*words[1:], "--help"]).output
            assert "\\b" not in shown
            assert "\b" not in shown


def test_lines_of_a_help_that_is_a_table_stay_lines() -> None:
    shown = CliRunner().invoke(logctl, ["acl", "--help"]).output
    assert "\n  ROLES     append, read, truncate, hold, admin\n" in shown
    shown = CliRunner().invoke(logservice, ["certs", "--help"]).output
    assert "\n  logservice certs rotate\n" in shown
