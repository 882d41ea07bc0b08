"""Every way in which a command can end has an exit code and shows no traceback."""

from __future__ import annotations

import os
import subprocess
import sys

import click
import pytest
from logservice_wire.errors import Outcome, Reason, error_for, error_table

from logservice.cli.shell import exit_codes
from logservice.invariants import InvariantViolation


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_a_code(reason: Reason) -> None:
    code = exit_codes.exit_code(error_for(reason, "x"))
    row = error_table()[reason]
    if row.outcome is Outcome.UNKNOWN:
        assert code == exit_codes.UNKNOWN
    elif row.retryable and reason is not Reason.SHARD_NOT_FOUND:
        assert code == exit_codes.UNAVAILABLE
    else:
        assert code in (exit_codes.REFUSED, exit_codes.USAGE)


def ending(error: BaseException | int | None, program: str = "program") -> int:
    @click.command()
    def command() -> int | None:
        if isinstance(error, BaseException):
            raise error
        return error

    with pytest.raises(SystemExit) as caught:
        exit_codes.run(command, program)
    assert isinstance(caught.value.code, int)
    return caught.value.code


@pytest.fixture(autouse=True)
def no_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["program"])


def test_endings(capsys: pytest.CaptureFixture[str]) -> None:
    assert ending(None) == 0
    assert ending(exit_codes.NEGATIVE) == 1
    assert ending(click.UsageError("what?")) == 2
    assert ending(error_for(Reason.INVALID_ARGUMENT, "no", field="x")) == 2
    assert ending(error_for(Reason.FENCED, "old")) == 3
    assert ending(error_for(Reason.BUSY)) == 4
    assert ending(error_for(Reason.DEADLINE)) == 5
    assert ending(error_for(Reason.SHARD_NOT_FOUND, "no log is called 'x'")) == 3
    assert ending(error_for(Reason.SHARD_NOT_FOUND, shard="7")) == 3
    assert ending(error_for(Reason.SHARD_NOT_FOUND, shard="0")) == 4
    assert ending(KeyboardInterrupt()) == 130
    assert ending(error_for(Reason.VERB_REFUSED, why="it would stop", forcible="true")) == 3
    assert ending(BrokenPipeError()) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "error: FENCED: old" in shown.err
    assert (
        "allow that; first change this: it would stop (forcible=true)\nwith --force it is done"
        in shown.err
    )
    assert "Traceback" not in shown.err


@pytest.mark.parametrize("defect", [KeyError("x"), RuntimeError("y"), InvariantViolation("I", {})])
def test_a_defect_of_the_program_is_not_the_answer_no(
    defect: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ending(defect) == exit_codes.INTERNAL == 70
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("Traceback")
    assert shown.err.endswith("internal error: please report it with the output\n")


def test_who_finds_the_cluster_not_ready_is_sent_to_the_doctor(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ending(error_for(Reason.NOT_READY, "no leader"), "logctl") == 4
    assert capsys.readouterr().err.endswith("\n`logctl doctor` says what is wrong\n")
    assert ending(error_for(Reason.BUSY), "logctl") == 4
    assert ending(error_for(Reason.NOT_READY), "logservice") == 4
    assert "doctor" not in capsys.readouterr().err


def test_table_names_every_code() -> None:
    listed = {int(line.split()[0]) for line in exit_codes.TABLE.splitlines()}
    codes = {
        value for name, value in vars(exit_codes).items() if name.isupper() and name != "TABLE"
    }
    assert listed == {code for code in codes if isinstance(code, int)}


PROGRAM = """
import click
from logservice.cli.shell import exit_codes
from logservice.invariants import InvariantViolation

@click.command()
@click.argument("lines", type=int)
def command(lines):
    for number in range(lines):
        click.echo(f"line {number}")
exit_codes.run(command, "program")
"""


@pytest.mark.parametrize("lines", [1, 100_000])
def test_a_reader_that_has_enough_is_no_failure(lines: int) -> None:
    """The output is more than a pipe holds, or less. With less only the last flush finds that the
    reader has gone.
    """
    code, complaint = read_by_nobody([sys.executable, "-c", PROGRAM, str(lines)])
    assert (code, complaint) == (0, "")


@pytest.mark.parametrize("program", ["logctl", "logservice"])
def test_help_into_head(program: str) -> None:
    module = {"logctl": "logservice.cli.logctl", "logservice": "logservice.cli.main"}[program]
    code = f"from {module} import main; main()"
    assert read_by_nobody([sys.executable, "-c", code, "--help"]) == (0, "")


def read_by_nobody(command: list[str]) -> tuple[int, str]:
    """Run it with a stdout whose other end is closed; returns exit code and stderr."""
    reading, writing = os.pipe()
    os.close(reading)
    path = os.pathsep.join(entry for entry in sys.path if entry)
    try:
        ended = subprocess.run(
            command,
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
            env={**os.environ, "PYTHONPATH": path},
        )
    finally:
        os.close(writing)
    return ended.returncode, ended.stderr
