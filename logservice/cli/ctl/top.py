"""`logctl top`: the cluster on a terminal, live."""

from __future__ import annotations

import itertools
import json
import time
from typing import TYPE_CHECKING

import click
from logservice_wire.errors import LogServiceError, NotReady

from logservice.cli.ctl.client_session import Session, pass_session
from logservice.cli.ctl.time_left import left_s, now_s
from logservice.cli.shell.output import output_option, say
from logservice.safe_text import safe_text

if TYPE_CHECKING:
    from logservice.server.monitor.cluster.rows import ClusterReport

_ATTEMPT_S = 3.0


class Source:
    """Where reports come from: the store that answered last, else the next one that answers."""

    def __init__(self, session: Session) -> None:
        """Use the endpoints of the session. Raises InvalidArgument without any."""
        from logservice.cli.ctl.outside_view import addresses_of

        self._session = session
        self._addresses = addresses_of(session.endpoints)

    def fetch(self, timeout_s: float) -> ClusterReport:
        """The newest report. Raises NotReady when no store answers in that time."""
        from logservice.cli.ctl.outside_view import fetch

        failure = ""
        ends_s = now_s() + timeout_s
        for _ in range(len(self._addresses)):
            try:
                limit_s = min(left_s(ends_s), _ATTEMPT_S)
                return fetch(self._addresses[0], limit_s, self._session.tls, made_now=False)
            except LogServiceError as error:
                failure = str(error)
                self._addresses.append(self._addresses.pop(0))
        raise NotReady(f"no store answers: {failure}")


@click.command()
@click.option(
    "--interval", type=click.FloatRange(min=0.5), default=2.0, show_default=True, help="Seconds."
)
@click.option(
    "--sort",
    type=click.Choice(["state", "rate", "lag", "shard"]),
    default="state",
    show_default=True,
    help="Which shards come first: troubled, busy, lagging, or by number.",
)
@click.option("--count", type=click.IntRange(min=1), help="Screens to show; default: no end.")
@output_option
@pass_session
def top(session: Session, interval: float, sort: str, count: int | None, form: str) -> None:
    """Show the cluster on the terminal, live.

    Stores, shards, repairs, events. Latencies are of the time since the screen before; append: of
    the shards that the store leads. Ctrl-C ends it. With -o json, one report is printed: the
    documents of the admin port's /api/v1.
    """
    source = Source(session)
    if form == "json":
        from logservice.server.monitor.own.status import to_json

        say(json.dumps(json.loads(to_json(source.fetch(session.timeout_s)))))
        return
    _live(source, session.patience_s, interval, sort, count)


def _live(source: Source, patience_s: float, interval: float, sort: str, count: int | None) -> None:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.text import Text

    from logservice.cli.ctl.top_view import screen

    console = Console()
    before: ClusterReport | None = None
    newest: ClusterReport | None = None
    shown: RenderableType = Text("asking")
    with Live(shown, console=console, screen=console.is_terminal, auto_refresh=False) as live:
        for number in itertools.count(1):
            started_s = time.monotonic()
            try:
                report = source.fetch(patience_s)
                if newest is None or report.cluster.time_us != newest.cluster.time_us:
                    # A store gives the same report to all who ask within a second.
                    before, newest = newest, report
                height, width = console.height, console.width
                live.update(screen(newest, before, sort, height, width), refresh=True)
            except NotReady as error:
                live.update(Text(safe_text(error.message), "bold red"), refresh=True)
            if number == count:
                return
            time.sleep(max(0.0, interval - (time.monotonic() - started_s)))
