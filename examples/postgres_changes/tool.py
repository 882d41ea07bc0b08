"""The programs: ``ship``, ``copy``, ``take-over``, ``table``. LOGSERVICE_ENDPOINTS and
LOGSERVICE_TLS_* name the log service, as everywhere.

``ship`` exits with 3 when another shipper has the log, and with 4 when PostgreSQL cannot continue
it; then starting it again changes nothing. ``copy`` makes a new beginning in the same log.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from deltalake.exceptions import DeltaError
from logservice_client import LogClient, LogServiceError, Shard
from logservice_client.output_lines import OutputLines
from logservice_delta import LogName, LogTable, Pace, TableConflict, tail

from examples.postgres.address import Address
from examples.postgres.arguments import add_address
from examples.postgres.arguments import address as address_of
from examples.postgres.ownership import LogTaken, take_over
from examples.postgres.protocol import PostgresError
from examples.postgres.replication import Connection
from examples.postgres_changes import delta_table
from examples.postgres_changes.catalog import PARAMETERS
from examples.postgres_changes.change import ChangeError
from examples.postgres_changes.log_end import EndMissing
from examples.postgres_changes.shipper import Shipper
from examples.postgres_changes.transactions import ShippingRefused

Say = Callable[[str], None]

FAILED: Final = 1
TAKEN: Final = 3
REFUSED: Final = 4

CALL_TIMEOUT_S: Final = 60.0
MESSAGE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of a change as PostgreSQL sends it, which may have the old row beside the new one."""

COMMIT_BYTES: Final = 16 * 1024 * 1024
"""Of blocks, for a commit of the table. A merge rewrites files, so few large ones cost less."""


def main(words: list[str] | None = None) -> int:
    """Run one of them; the exit code."""
    arguments = _parser().parse_args(words)
    failures = (PostgresError, LogServiceError, TableConflict, DeltaError, ChangeError)
    try:
        asyncio.run(_run(arguments))
    except LogTaken as error:
        print(f"the log belongs to somebody else: {error}", file=sys.stderr)
        return TAKEN
    except (ShippingRefused, EndMissing) as error:
        print(f"refused: {error}", file=sys.stderr)
        return REFUSED
    except (*failures, OSError, ValueError) as error:
        print(f"failed: {error}", file=sys.stderr)
        return FAILED
    return 0


async def _run(arguments: argparse.Namespace) -> None:
    with OutputLines() as output:
        async with LogClient.from_env() as client:
            log = client.shard(arguments.shard)
            match arguments.program:
                case "ship":
                    await _shipper(log, arguments, output.say).run()
                case "copy":
                    await _shipper(log, arguments, output.say).copy()
                case "take-over":
                    epoch = await take_over(log, arguments.name, CALL_TIMEOUT_S)
                    output.say(f"{arguments.name} has the log, with writer epoch {epoch}")
                case "table":
                    await _tables(client, log, arguments, output.say)


def _shipper(log: Shard, arguments: argparse.Namespace, say: Say) -> Shipper:
    where: Address = address_of(arguments)
    parameters = PARAMETERS | {
        "database": arguments.database,
        "application_name": arguments.application_name,
    }

    def connect() -> asyncio.Future[Connection]:
        made = Connection.connect(where, parameters, body_bytes_max=MESSAGE_BYTES_MAX)
        return asyncio.ensure_future(made)

    return Shipper(log, arguments.name, arguments.slot, arguments.publication, connect, say)


async def _tables(client: LogClient, log: Shard, arguments: argparse.Namespace, say: Say) -> None:
    """Each in a directory of its name, and each with a position of its own."""
    stop = asyncio.Event()
    for one in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(one, stop.set)
    cluster_id = (await client.hakeeper.cluster_state(timeout=CALL_TIMEOUT_S)).cluster_id
    try:
        async with asyncio.TaskGroup() as tasks:
            for name in arguments.tables:
                tasks.create_task(_table(log, cluster_id, name, arguments, stop, say))
    except ExceptionGroup as group:
        raise group.exceptions[0] from None


async def _table(
    log: Shard,
    cluster_id: str,
    name: str,
    arguments: argparse.Namespace,
    stop: asyncio.Event,
    say: Say,
) -> None:
    schema, _, table = name.rpartition(".")
    uri = str(arguments.dir / name)
    status = await log.status(timeout=CALL_TIMEOUT_S)
    assert log.lineage is not None, "an answer was heard"
    following = await asyncio.to_thread(
        LogTable.open,
        uri,
        LogName(cluster_id, log.shard_id, "changes"),
        log.lineage,
        parent=status.lineage_parent,
        write=delta_table.Follow(schema or "public", table),
        schema=delta_table.SCHEMA,
    )
    say(f"{name}: from LSN {following.last_lsn + 1}")
    await tail(
        log,
        following,
        until_tail=not arguments.follow,
        pace=Pace(COMMIT_BYTES, arguments.commit_s),
        stop=stop,
        ends=delta_table.whole,
        committed=lambda rows, lsn: say(f"{name}: {rows} records, up to LSN {lsn}"),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m examples.postgres_changes.tool",
        description=(__doc__ or "").partition("\n")[0],
    )
    programs = parser.add_subparsers(dest="program", required=True)
    ship = programs.add_parser("ship", help="PostgreSQL's changes into the log; a copy first")
    copy = programs.add_parser("copy", help="a new slot and a new copy of all tables")
    over = programs.add_parser("take-over", help="give the log to another server")
    table = programs.add_parser("table", help="Delta tables that follow the log")
    for program in (ship, copy, over, table):
        program.add_argument("--shard", type=int, default=1)
    for program in (ship, copy, over):
        program.add_argument("--name", required=True, help="of the server that has the log")
    for program in (ship, copy):
        add_address(program)
        program.add_argument("--database", default="postgres")
        program.add_argument("--publication", default="logservice")
        program.add_argument("--slot", default="logservice_changes")
        program.add_argument("--application-name", default="logservice_changes")
    table.add_argument(
        "--table", required=True, action="append", dest="tables", metavar="SCHEMA.NAME"
    )
    table.add_argument("--dir", type=Path, required=True, help="of the Delta tables")
    table.add_argument("--follow", action="store_true", help="go on at the end, until SIGTERM")
    table.add_argument("--commit-s", type=float, default=5.0, help="seconds between commits")
    return parser


if __name__ == "__main__":
    sys.exit(main())
