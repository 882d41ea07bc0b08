"""The programs: ``ship``, ``take-over``, ``restore``, ``truncate``. LOGSERVICE_ENDPOINTS and
LOGSERVICE_TLS_* name the log service, as everywhere.

``ship`` exits with 3 when another server has the log, and with 4 when PostgreSQL's WAL does not
continue it; then starting it again changes nothing.

``restore`` writes one file for PostgreSQL. It exits with 0 when it did, and with 100 when the log
has no such file. A `restore_command` must not tell PostgreSQL that a file does not exist for any
other reason: PostgreSQL would take that for the end of the WAL, and begin a new timeline there.
`restore_command` makes a line of shell which ends recovery with an error after everything else,
also when Python itself cannot start.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from logservice_client import LogClient, LogServiceError, Shard
from logservice_client.output_lines import OutputLines

from examples.postgres.arguments import add_address
from examples.postgres.arguments import address as address_of
from examples.postgres.ownership import LogTaken, take_over
from examples.postgres.protocol import PostgresError
from examples.postgres.replication import Connection
from examples.postgres.settings import PHYSICAL
from examples.postgres.wal_position import position_text
from examples.postgres_wal import wal_log
from examples.postgres_wal.base_backup import start_of_backup
from examples.postgres_wal.chunk import ChunkError
from examples.postgres_wal.shipper import Shipper
from examples.postgres_wal.timelines import ShippingRefused
from examples.postgres_wal.truncation import truncate_below
from examples.postgres_wal.wal_log import WalMissing

FAILED: Final = 1
TAKEN: Final = 3
REFUSED: Final = 4
NO_SUCH_FILE: Final = 100
"""Exit codes. None of them is one that a shell or an interpreter which cannot start uses by itself,
but for 1."""

CALL_TIMEOUT_S: Final = 60.0

_ROOT: Final = Path(__file__).resolve().parents[2]


def restore_command(variables: Mapping[str, str], shard: int) -> str:
    """The value of PostgreSQL's parameter, without its quotes. `variables`: LOGSERVICE_ENDPOINTS,
    and LOGSERVICE_TLS_* where there is TLS; others are left out.

    0 and 1 are what PostgreSQL takes for "here it is" and "there is none"; after 255 it stops.
    """
    words = ["env", f"PYTHONPATH={_ROOT}"]
    words += [
        f"{name}={value}"
        for name, value in sorted(variables.items())
        if name == "LOGSERVICE_ENDPOINTS" or name.startswith("LOGSERVICE_TLS_")
    ]
    words += [sys.executable, "-m", "examples.postgres_wal.tool", "restore", "--shard", str(shard)]
    program = " ".join(shlex.quote(word) for word in words).replace("%", "%%")
    return (
        f'{program} "%f" "%p"; case $? in 0) exit 0;; {NO_SUCH_FILE}) exit 1;; *) exit 255;; esac'
    )


def main(words: list[str] | None = None) -> int:
    """Run one of them; the exit code."""
    arguments = _parser().parse_args(words)
    if arguments.program == "restore-command":
        print(restore_command(os.environ, arguments.shard))
        return 0
    try:
        return asyncio.run(_run(arguments))
    except LogTaken as error:
        print(f"the log belongs to somebody else: {error}", file=sys.stderr)
        return TAKEN
    except ShippingRefused as error:
        print(f"refused: {error}", file=sys.stderr)
        return REFUSED
    except (PostgresError, LogServiceError, ChunkError, WalMissing, OSError, ValueError) as error:
        print(f"failed: {error}", file=sys.stderr)
        return FAILED


async def _run(arguments: argparse.Namespace) -> int:
    with OutputLines() as output:
        async with LogClient.from_env() as client:
            log = client.shard(arguments.shard)
            match arguments.program:
                case "ship":
                    await _ship(log, arguments, output)
                case "take-over":
                    epoch = await take_over(log, arguments.name, CALL_TIMEOUT_S)
                    last = await wal_log.last_chunk(log)
                    output.say(
                        f"{arguments.name} has the log, with writer epoch {epoch};"
                        f" it ends with {last}"
                    )
                case "restore":
                    found = await wal_log.file_named(log, arguments.file)
                    if found is None:
                        return NO_SUCH_FILE
                    await asyncio.to_thread(Path(arguments.path).write_bytes, found)
                case "truncate":
                    start = start_of_backup(arguments.backup)
                    lsn = await truncate_below(log, arguments.name, start)
                    output.say(f"truncated up to LSN {lsn}, below {position_text(start.position)}")
    return 0


async def _ship(log: Shard, arguments: argparse.Namespace, output: OutputLines) -> None:
    address = address_of(arguments)
    parameters = {"replication": PHYSICAL, "application_name": arguments.application_name}

    def connect() -> asyncio.Future[Connection]:
        return asyncio.ensure_future(Connection.connect(address, parameters))

    await Shipper(log, arguments.name, arguments.slot, connect, output.say).run()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m examples.postgres_wal.tool", description=(__doc__ or "").partition("\n")[0]
    )
    programs = parser.add_subparsers(dest="program", required=True)
    ship = programs.add_parser(
        "ship", help="PostgreSQL's WAL into the log, as a synchronous standby"
    )
    over = programs.add_parser("take-over", help="give the log to another server, before a restore")
    restore = programs.add_parser("restore", help="one file for PostgreSQL's restore_command")
    command = programs.add_parser(
        "restore-command", help="print PostgreSQL's restore_command for what the environment names"
    )
    truncate = programs.add_parser("truncate", help="let go what lies below a base backup")
    for program in (ship, over, restore, command, truncate):
        program.add_argument("--shard", type=int, default=1)
    for program in (ship, over, truncate):
        program.add_argument("--name", required=True, help="of the server that has the log")
    add_address(ship)
    ship.add_argument("--slot", default="logservice")
    ship.add_argument("--application-name", default="logservice")
    restore.add_argument("file", help="%%f")
    restore.add_argument("path", help="%%p")
    truncate.add_argument("backup", type=Path, help="the directory of the newest base backup")
    return parser


if __name__ == "__main__":
    sys.exit(main())
