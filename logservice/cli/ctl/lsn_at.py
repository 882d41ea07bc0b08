"""`logctl lsn-at`: where a shard stood at a time."""

from __future__ import annotations

import click
from logservice_client import LogClient

from logservice.cli.ctl.client_session import Session, pass_session
from logservice.cli.ctl.shard_argument import shard_argument
from logservice.cli.shell.moment import moment_us
from logservice.cli.shell.output import output_option, show_fields


@click.command()
@shard_argument("shard")
@click.argument("time")
@click.option("--stale", is_flag=True, help="What one replica has, without asking the others.")
@output_option
@pass_session
def lsn_at(session: Session, shard: int, time: str, stale: bool, form: str) -> None:
    """Print the first LSN appended at a time, or later.

    TIME is ISO 8601 (UTC, unless it names a zone) or seconds since 1970. It is compared with the
    times that the shard gave to its blocks, not with the clients' clocks. If nothing is that young,
    the LSN of the next record is printed. "truncated" says that older records, which are gone, may
    have been meant.
    """
    time_us = moment_us(time)

    async def work(client: LogClient) -> None:
        log = client.shard(shard)
        found = await log.lsn_at_time(time_us, stale=stale, timeout=session.timeout_s)
        show_fields(form, {"lsn": found.lsn, "truncated": found.truncated})

    session.run(work)
