"""`logctl doctor`: looks at a cluster from outside and says what is wrong and what to do.

What it needs is loaded with this file, so before its time begins to count: that takes a second.
"""

from __future__ import annotations

import json
import re
import textwrap
from typing import Final

import click
import msgspec

from logservice.cli.ctl.client_session import Session, pass_session
from logservice.cli.ctl.outside_view import view_from_outside
from logservice.cli.shell import exit_codes
from logservice.cli.shell.output import output_option, say, say_in_colour
from logservice.cli.shell.table import width
from logservice.server.monitor.cluster.diagnosis import FindingRow, Severity, diagnose, row

_COLUMNS: Final = 96
"""How long a line gets where the screen is wider: longer ones are hard to read."""

_COMMAND: Final = re.compile(r"`[^`]*`")
_KEPT: Final = "\x00"
"""Stands for a space where no line may end."""

_COLOURS = {"broken": "red", "danger": "red", "warning": "yellow", "notice": "blue"}


@click.command()
@click.option(
    "--fail-on",
    type=click.Choice(["broken", "danger", "warning", "notice"]),
    default="warning",
    show_default=True,
    help="Exit code 1 for a finding that is as severe, or more.",
)
@output_option
@pass_session
def doctor(session: Session, fail_on: str, form: str) -> int:
    """Say what is wrong with the cluster, and what to do.

    It looks from outside. Every store is asked whether it answers from here, and one for what the
    cluster looks like. Nothing is changed. Findings are ordered by severity: broken, danger,
    warning, notice.

    Exit code 0 when nothing has to be done, 1 when there is a finding of --fail-on or worse, 4 when
    the doctor could not look because no store answers it.
    """
    seen = view_from_outside(session.endpoints, session.timeout_s, session.tls)
    findings = diagnose(seen)

    rows = [row(finding) for finding in findings]
    if form == "json":
        say(json.dumps([msgspec.to_builtins(one) for one in rows]))
    else:
        for one in rows:
            _tell(one)
        if seen.report is not None:
            cluster = seen.report.cluster
            led = cluster.shards - cluster.shards_without_leader
            say(
                f"{cluster.cluster}: {cluster.stores_ready} of {cluster.stores} stores ready,"
                f" {led} of {cluster.shards} shards have a leader,"
                f" {cluster.operators or 'nothing'} under way."
                + ("" if findings else " Nothing is wrong.")
                + (
                    f" Seen by {cluster.asked_store}, without HAKeeper."
                    if cluster.hakeeper_error
                    else ""
                )
            )
    if seen.report is None:
        return exit_codes.UNAVAILABLE
    bad = any(finding.severity <= Severity[fail_on.upper()] for finding in findings)
    return exit_codes.NEGATIVE if bad else exit_codes.OK


def _tell(finding: FindingRow) -> None:
    severity = finding.severity
    say_in_colour(f"{severity.upper()} ", _COLOURS[severity])
    say(_wrapped(finding.what, "  ", first=len(severity) + 1))
    say(_wrapped(finding.means, "  ", first=-1))
    say(_wrapped(f"To do: {finding.do}", "  ", first=-1))
    if finding.page:
        say(f"  See {finding.page}")
    say()


def _wrapped(text: str, indent: str, first: int) -> str:
    """The text in lines; a command in it stays on one line, so that it can be copied. `first`: how
    many columns of the first line are taken already; -1 when it is indented as the others are.
    """
    start = indent if first < 0 else " " * first
    lines = textwrap.wrap(
        _COMMAND.sub(lambda found: found[0].replace(" ", _KEPT), text),
        min(width() or _COLUMNS, _COLUMNS),
        initial_indent=start,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines)[max(0, first) :].replace(_KEPT, " ")
