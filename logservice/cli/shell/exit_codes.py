"""exit_codes: what a script may conclude from how a command ended; `TABLE` is shown by --help.

When the reader of a pipe has enough (``logctl read 1 | head``), that is no failure: the command
ends quietly with 0. Output that is still buffered is dropped. Otherwise the interpreter would
complain about it at its end.

`told_error` says an error. With ``-o json`` the hints for people are left out: what they say is in
the object (`forcible`, the reason).
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import Final, NoReturn, TextIO

import click
from logservice_wire.errors import (
    InvalidArgument,
    LogServiceError,
    NotReady,
    Outcome,
    ShardNotFound,
    TooLarge,
)

from logservice.cli.shell.completion import silence_if_asked
from logservice.cli.shell.output import say
from logservice.cli.shell.told_error import form_of, tell, tell_usage
from logservice.invariants import InvariantViolation

TABLE: Final = """\
   0  done
   1  the command looked, and the answer is no (damage, a finding, a difference)
   2  the command line, the configuration or an argument is wrong; nothing was done
   3  refused: as asked it will not succeed (fenced, truncated, no such shard ...); no effect
   4  unavailable: it may succeed later or elsewhere (no leader, busy ...); no effect
   5  unknown outcome: it may have taken effect (deadline, connection lost)
   6  the store cannot start here (port, data directory, permissions)
  70  internal error: please report it with the output
 130  interrupted"""

OK: Final = 0
NEGATIVE: Final = 1
USAGE: Final = 2
REFUSED: Final = 3
UNAVAILABLE: Final = 4
UNKNOWN: Final = 5
CANNOT_START: Final = 6
INTERNAL: Final = 70
INTERRUPTED: Final = 130


def exit_code(error: LogServiceError) -> int:
    """The row of the table for an operating error."""
    if isinstance(error, InvalidArgument | TooLarge):
        return USAGE
    if error.outcome is Outcome.UNKNOWN:
        return UNKNOWN
    if isinstance(error, ShardNotFound) and error.metadata.get("shard") != "0":
        # The client has asked for the shard elsewhere already, and nobody knows it: a wrong name or
        # id. Only a store that runs no replica of HAKeeper says so of shard 0.
        return REFUSED
    return UNAVAILABLE if error.retryable else REFUSED


def tell_error(form: str, error: LogServiceError, text: str = "") -> int:
    """Say an operating error on stderr; its exit code. `text`: what is said in place of its own."""
    code = exit_code(error)
    # No such shard: the wire's table calls it retryable, because another store may have it.
    tell(form, error, retryable=error.retryable and code in (UNAVAILABLE, UNKNOWN), text=text)
    return code


def run(command: click.Command, program: str) -> NoReturn:
    """Run a command line and exit; an operating error becomes one line on stderr, which is
    a JSON object if the command line asks for that.
    """
    silence_if_asked(program)
    stdout = sys.stdout
    words = sys.argv[1:]
    code = _outcome(
        lambda: command.main(words, prog_name=program, standalone_mode=False),
        program,
        form_of(words),
    )
    try:
        stdout.flush()
    except BrokenPipeError:
        _drop_output(stdout)
    raise SystemExit(code)


def _outcome(call: Callable[[], object], program: str, form: str) -> int:
    stdout = sys.stdout
    try:
        result = call()
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        tell_usage(form, error)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        return OK
    except SystemExit:
        # After a broken pipe click exits with 1 and puts another object in the place of stdout.
        if sys.stdout is stdout:
            raise
        sys.stdout = stdout
        return OK
    except LogServiceError as error:
        code = tell_error(form, error)
        if form == "json":
            return code
        if error.metadata.get("forcible") == "true":
            say("with --force it is done all the same", err=True)
        if program == "logctl" and isinstance(error, NotReady):
            say("`logctl doctor` says what is wrong", err=True)
        return code
    except (Exception, InvariantViolation):  # noqa: BLE001 - reported, and the process ends
        # A defect of the program. Python itself would end with 1, which says "the answer is no".
        traceback.print_exc()
        say("internal error: please report it with the output", err=True)
        return INTERNAL
    return result if isinstance(result, int) else OK


def _drop_output(stdout: TextIO) -> None:
    """Drop what is still in the buffer, because nothing reads it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stdout.fileno())
    os.close(nowhere)
