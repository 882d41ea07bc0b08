"""`logctl doctor`: looks at a cluster from outside and says what is wrong and what to do."""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING

import click
import msgspec

from logservice.cli.ctl.client_session import Session, pass_session
from logservice.cli.shell import exit_codes
from logservice.cli.shell.output import output_option, say, say_in_colour

if TYPE_CHECKING:
    from logservice.server.monitor.cluster.diagnosis import FindingRow

_COLOURS = {"broken": "red", "danger": "red", "warning": "yellow", "notice": "blue"}


@click.command()
@click.option("--strict", is_flag=True, help="Exit code 1 for warnings, too.")
@output_option
@pass_session
def doctor(session: Session, strict: bool, form: str) -> int:
    """Say what is wrong with the cluster, and what to do.

    It looks from outside. Every store is asked whether it answers from here, and one for what the
    cluster looks like. Nothing is changed. Findings are ordered by severity: broken, danger,
    warning, notice.

    Exit code 1 when something is broken or in danger; with --strict also for a warning.
    """
    from logservice.cli.ctl.outside_view import view_from_outside
    from logservice.server.monitor.cluster.diagnosis import Severity, diagnose, row

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
    worst = min((finding.severity for finding in findings), default=Severity.NOTICE)
    limit = Severity.WARNING if strict else Severity.DANGER
    return exit_codes.NEGATIVE if worst <= limit else exit_codes.OK


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
    """The text in lines of 96 columns. `first`: how many columns of the first line are taken
    already; -1 when the first line is indented as the others are.
    """
    start = indent if first < 0 else " " * first
    lines = textwrap.wrap(
        text,
        96,
        initial_indent=start,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines)[max(0, first) :]
