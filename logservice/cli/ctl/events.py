"""`logctl events`: what happened in the cluster, and what happens.

Each event is one line: its revision, when by HAKeeper's count of ticks, its kind, what it is about,
and a text; or one JSON object with -o json. Not to be taken for the events in a store's log file.
"""

from __future__ import annotations

import json
from contextlib import aclosing

import click
from logservice_client import LogClient
from logservice_wire.errors import EventsCompacted
from logservice_wire.v1 import hakeeper_pb2

from logservice.cli.ctl.client_session import Session, pass_session
from logservice.cli.shell.output import output_option, say
from logservice.hakeeper.commands.cluster_events import EventKind


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
    """

    async def work(client: LogClient) -> None:
        state = await client.hakeeper.cluster_state(timeout=session.timeout_s)
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
            start, kinds=kinds, shard_id=shard, patience=session.timeout_s
        )
        async with aclosing(watched) as messages:
            async for message in messages:
                for event in message.events:
                    if follow or event.revision <= newest:
                        _say(event, form)
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


def _say(event: hakeeper_pb2.ClusterEvent, form: str) -> None:
    if form == "json":
        fields = {
            "revision": event.revision,
            "tick": event.tick,
            "kind": event.kind,
            "shard": event.shard_id,
            "replica": event.replica_id,
            "store": event.store,
            "text": event.text,
        }
        say(json.dumps(fields))
        return
    about = [
        *([f"shard {event.shard_id}"] if event.shard_id else ()),
        *([f"replica {event.replica_id}"] if event.replica_id else ()),
        *([event.store] if event.store else ()),
    ]
    where = ", ".join(about)
    line = f"{event.revision:>8}  {event.tick / 10:>10.1f} s  {event.kind:<18}  "
    say(line + ": ".join(filter(None, (where, event.text))))
