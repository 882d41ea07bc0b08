"""`logctl shard adopt`: HAKeeper takes over what `logservice recover` has rebuilt of shards."""

from __future__ import annotations

import json
from pathlib import Path

import click
from logservice_client import LogClient
from logservice_wire.errors import InvalidArgument
from logservice_wire.regular_file import read_regular

from logservice.cli.ctl.client_session import Session, pass_session
from logservice.cli.shell.output import output_option, show_rows

_REPORT_BYTES_MAX = 64 * 1024 * 1024


@click.command()
@click.argument("report", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--i-know-records-may-be-lost",
    "person",
    metavar="NAME",
    required=True,
    help="Who decides that.",
)
@output_option
@pass_session
def adopt(session: Session, report: Path, person: str, form: str) -> None:
    """Go on with shards that were rebuilt by force.

    REPORT is the file RECOVERED of the new data directory. It is needed when shard 0 was not
    rebuilt with them; say it before the store starts there.
    """
    rows = [row for row in _rows(report) if row[0]]
    if not rows:
        raise InvalidArgument("it names no shard", field="report")

    async def work(client: LogClient) -> None:
        for shard, membership in rows:
            await client.hakeeper.adopt_shard(
                shard, membership, reason=person, timeout=session.timeout_s
            )

    session.run(work)
    show_rows(form, [{"shard": shard, "adopted": True} for shard, _ in rows], "shards")


def _rows(report: Path) -> list[tuple[int, bytes]]:
    try:
        return [
            (int(row["shard"]), bytes.fromhex(row["membership"]))
            for row in json.loads(read_regular(report, _REPORT_BYTES_MAX))
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidArgument("that is no report of a recovery", field="report") from error
