"""Every way a command can end has its exit code and no traceback."""

from __future__ import annotations

import click
import pytest
from logservice_wire.errors import Outcome, Reason, error_for, error_table

from logservice.cli import exit_codes


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_a_code(reason: Reason) -> None:
    code = exit_codes.exit_code(error_for(reason, "x"))
    row = error_table()[reason]
    if row.outcome is Outcome.UNKNOWN:
        assert code == exit_codes.UNKNOWN
    elif row.retryable:
        assert code == exit_codes.UNAVAILABLE
    else:
        assert code in (exit_codes.REFUSED, exit_codes.USAGE)


def ending(error: BaseException | int | None) -> int:
    @click.command()
    def command() -> int | None:
        if isinstance(error, BaseException):
            raise error
        return error

    with pytest.raises(SystemExit) as caught:
        exit_codes.run(command, "program")
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
    assert ending(KeyboardInterrupt()) == 130
    assert ending(BrokenPipeError()) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "error: FENCED: old" in shown.err
    assert "Traceback" not in shown.err


def test_table_names_every_code() -> None:
    listed = {int(line.split()[0]) for line in exit_codes.TABLE.splitlines()}
    codes = {
        value for name, value in vars(exit_codes).items() if name.isupper() and name != "TABLE"
    }
    assert listed == {code for code in codes if isinstance(code, int)}
