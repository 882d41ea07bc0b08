"""`logctl doctor`: looks at a cluster from outside and says what is wrong and what to do."""

from __future__ import annotations

import json
import textwrap

import click

from logservice.cli.ctl.client_session import Session, pass_session
from logservice.cli.shell import exit_codes
from logservice.cli.shell.output import output_option, say, say_in_colour

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
    from logservice.cli.ctl.diagnosis import Finding, Severity, diagnose
    from logservice.cli.ctl.outside_view import view_from_outside

    seen = view_from_outside(session.endpoints, session.timeout_s, session.tls)
    findings = diagnose(seen)

    def fields(finding: Finding) -> dict[str, str]:
        return {
            "severity": finding.severity.name.lower(),
            "code": finding.code,
            "what": finding.what,
            "means": finding.means,
            "do": finding.do,
            "page": f"docs/operations/{finding.page}" if finding.page else "",
        }

    if form == "json":
        say(json.dumps([fields(finding) for finding in findings]))
    else:
        for finding in findings:
            _tell(fields(finding))
        if seen.report is not None:
            row = seen.report.cluster
            say(
                f"{row.cluster}: {row.stores_ready} of {row.stores} stores ready,"
                f" {row.shards - row.shards_without_leader} of {row.shards} shards have a leader,"
                f" {row.operators or 'nothing'} under way."
                + ("" if findings else " Nothing is wrong.")
                + (f" Seen by {row.asked_store}, without HAKeeper." if row.hakeeper_error else "")
            )
    worst = min((finding.severity for finding in findings), default=Severity.NOTICE)
    limit = Severity.WARNING if strict else Severity.DANGER
    return exit_codes.NEGATIVE if worst <= limit else exit_codes.OK


def _tell(finding: dict[str, str]) -> None:
    severity = finding["severity"]
    say_in_colour(f"{severity.upper()} ", _COLOURS[severity])
    say(_wrapped(finding["what"], "  ", first=len(severity) + 1))
    say(_wrapped(finding["means"], "  ", first=-1))
    say(_wrapped(f"To do: {finding['do']}", "  ", first=-1))
    if finding["page"]:
        say(f"  See {finding['page']}")
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
