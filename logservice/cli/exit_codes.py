"""exit_codes: what a script may conclude from how a command ended; `TABLE` is shown by --help."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NoReturn

import click
from logservice_wire.errors import InvalidArgument, LogServiceError, Outcome, TooLarge

TABLE: Final = """\
   0  done
   1  the command looked, and the answer is no (a check found damage, a store does not run)
   2  the command line, the configuration or an argument is wrong; nothing was done
   3  refused: as asked it will not succeed (fenced, truncated, exists ...); no effect
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
    return UNAVAILABLE if error.retryable else REFUSED


def run(command: click.Command, program: str) -> NoReturn:
    """Run a command line and exit; an operating error becomes one line on stderr."""
    raise SystemExit(_outcome(lambda: command.main(prog_name=program, standalone_mode=False)))


def _outcome(call: Callable[[], object]) -> int:
    try:
        result = call()
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        # `logctl read | head`: the reader had enough.
        return OK
    except LogServiceError as error:
        click.echo(f"error: {error}", err=True)
        return exit_code(error)
    return result if isinstance(result, int) else OK
