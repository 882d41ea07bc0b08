"""told_error: one way to say on stderr that a command failed, for people (a line) and for scripts.

With ``-o json`` an error is one line, too, and the line is a JSON object: `reason`, `message`,
`metadata`, `retryable` and `outcome`, as in `logservice_wire.errors`. What else is on stderr, such
as progress, is for people, and no line of it begins with a brace. A command line that the program
does not understand is told the same way, as INVALID_ARGUMENT.

Theory of operation. Which form is meant is read off the words of the command line, and not from the
parsed options. A command line may be wrong, and the options of `logctl` itself are judged before
those of its commands; also then a script that asked for JSON gets JSON. The price: an option that
takes the word ``-o`` as its value, followed by ``json``, asks for JSON errors, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import click
from logservice_wire.errors import LogServiceError, Outcome, Reason

from logservice.cli.shell.output import say
from logservice.safe_text import safe_text


def form_of(words: Sequence[str]) -> str:
    """The form that a command line asks for: "json" or "table". The last option wins."""
    form = "table"
    before = ""
    for word in words:
        if word == "--":
            break
        if before in ("-o", "--output"):
            form = word
        elif word.startswith("--output="):
            form = word.removeprefix("--output=")
        elif word.startswith("-o") and word != "-o":
            form = word.removeprefix("-o")
        before = "" if before in ("-o", "--output") else word
    return "json" if form == "json" else "table"


def tell(form: str, error: LogServiceError, *, retryable: bool, text: str = "") -> None:
    """Say an operating error. `retryable`: whether a repetition can help. `text`: what a person
    reads, if not the error as it is.
    """
    if form != "json":
        say(text or f"error: {safe_text(str(error))}", err=True)
        return
    _object(
        error.reason,
        text or error.message,
        error.metadata,
        retryable=retryable,
        outcome=error.outcome,
    )


def tell_usage(form: str, error: click.ClickException) -> None:
    """Say that the command line is wrong, so that nothing was done."""
    if form != "json":
        error.show()
        return
    metadata: dict[str, str] = {}
    if isinstance(error, click.UsageError) and error.ctx is not None:
        metadata["command"] = error.ctx.command_path
    if isinstance(error, click.BadParameter):
        field = error.param.name if error.param is not None else error.param_hint
        if isinstance(field, str):
            metadata["field"] = field
    elif isinstance(error, click.NoSuchOption | click.BadOptionUsage):
        metadata["field"] = error.option_name
    _object(
        Reason.INVALID_ARGUMENT,
        error.format_message(),
        metadata,
        retryable=False,
        outcome=Outcome.NOT_APPLIED,
    )


def _object(
    reason: Reason, message: str, metadata: Mapping[str, str], *, retryable: bool, outcome: Outcome
) -> None:
    fields = {
        "reason": reason.value,
        "message": message,
        "metadata": dict(metadata),
        "retryable": retryable,
        "outcome": outcome.value,
    }
    say(json.dumps(fields), err=True)
