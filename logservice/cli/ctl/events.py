"""`logctl events`: what happened in the cluster, and what happens.

Each event is one line: its revision, the time of day, the seconds that HAKeeper has counted, its
kind, what it is about, and a text; or one JSON object with -o json. Not to be taken for the events
in a store's log file.

Theory of operation. Replicated state has no clock: an event is of a tick. The time of day is
counted back from now, ten ticks in a second. HAKeeper counts nothing while it stands still, so what
happened before that was so much earlier than it says here.
"""

from __future__ import annotations

import json
import textwrap
import time
from contextlib import aclosing

import click
from logservice_client import LogClient
from logservice_wire.errors import EventsCompacted
from logservice_wire.v1 import hakeeper_pb2

from logservice.bounds import HAKEEPER_TICKS_PER_S
from logservice.cli.ctl.client_session import Session, pass_session
from logservice.cli.shell.moment import moment_text
from logservice.cli.shell.output import output_option, say
from logservice.cli.shell.table import width
from logservice.hakeeper.commands.cluster_events import EventKind
from logservice.safe_text import safe_text

_TEXT_COLUMNS_MIN = 20
"""With less room than that a text is not wrapped behind its kind."""


@click.command()
@click.option("--follow", "-f", is_flag=True, help="Wait for more, until interrupted.")
@click.option(
    "--lines",
    "-n",
    type=click.IntRange(0),
    default=50,
    show_default=True,
    help="Begin so many events before the newest one.",
)
@click.option(
    "--after", type=click.IntRange(0), help="Begin behind this revision; fails if it is too old."
)
@click.option("--kind", "kinds", multiple=True, help="Only events of this kind; may be repeated.")
@click.option("--shard", type=click.IntRange(0), help="Only events about this shard.")
@output_option
@pass_session
def events(
    session: Session,
    follow: bool,
    lines: int,
    after: int | None,
    kinds: tuple[str, ...],
    shard: int | None,
    form: str,
) -> None:
    """Print what happened in the cluster, or follow it.

    Events are about stores, leaders, members, repairs, truncations and flags.

    The time of day is counted back from now, by HAKeeper's seconds beside it. HAKeeper counts none
    while it stands still: what happened before that was so much earlier.

    --timeout is how long it waits for a store that serves it.
    """
    begun_us = 0.0

    async def work(client: LogClient) -> None:
        nonlocal begun_us
        state = await client.hakeeper.cluster_state(timeout=session.timeout_s)
        begun_us = time.time() * 1e6 - _us(state.tick)
        newest = state.revision
        start = max(newest - lines, 0) if after is None else after
        while True:
            try:
                await _print(client, start, newest)
            except EventsCompacted as error:
                if after is not None:
                    raise
                start = error.number("oldest") - 1
            else:
                return

    async def _print(client: LogClient, start: int, newest: int) -> None:
        watched = client.hakeeper.event_messages(
            start, kinds=kinds, shard_id=shard, patience=session.patience_s
        )
        async with aclosing(watched) as messages:
            async for message in messages:
                for event in message.events:
                    if follow or event.revision <= newest:
                        _say(event, begun_us + _us(event.tick), form)
                if not follow and message.revision >= newest:
                    return

    unknown = sorted(set(kinds) - set(EventKind))
    if unknown:
        # A newer store may know it. With a slip of the pen nothing would ever be printed.
        say(
            f"this program knows no kind {', '.join(unknown)}; it knows {', '.join(EventKind)}",
            err=True,
        )
    session.run(work)


def _us(ticks: int) -> float:
    return ticks * 1e6 / HAKEEPER_TICKS_PER_S


def _say(event: hakeeper_pb2.ClusterEvent, time_us: float, form: str) -> None:
    moment = moment_text(int(time_us))
    if form == "json":
        fields = {
            "revision": event.revision,
            "tick": event.tick,
            "kind": event.kind,
            "shard": event.shard_id,
            "replica": event.replica_id,
            "store": event.store,
            "text": event.text,
            "time": moment,
        }
        say(json.dumps(fields))
        return
    about = [
        *([f"shard {event.shard_id}"] if event.shard_id else ()),
        *([f"replica {event.replica_id}"] if event.replica_id else ()),
        *([event.store] if event.store else ()),
    ]
    # The year would take the room that the text needs.
    clock = moment.partition("-")[2].replace("T", " ")
    seconds = f"{event.tick / HAKEEPER_TICKS_PER_S:.1f} s"
    line = f"{event.revision:>5}  {clock}  {seconds:>10}  {safe_text(event.kind):<17}  "
    text = safe_text(": ".join(filter(None, (", ".join(about), event.text))))
    room = width() - len(line)
    if len(text) <= room or room < _TEXT_COLUMNS_MIN:
        say(line + text)
        return
    for number, part in enumerate(textwrap.wrap(text, room, break_on_hyphens=False)):
        say(f"{'' if number else line:<{len(line)}}{part}")
