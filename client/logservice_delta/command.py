"""logservice-table: logs into a Delta table, each record once; from the command line.

    logservice-table --endpoints HOST:PORT --log orders --table DIR
    logservice-table --log orders --log payments --table s3://bucket/logs --follow --hold table

Without ``--follow`` it ends at the tail as it was. Run it again, or after it was killed, with the
same ``--job``: it goes on where the table is. One line of JSON for each commit, and one at the
beginning and the end of each log, go to the standard output. SIGTERM and SIGINT commit what was
read, and end it; the second one ends it at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from deltalake.exceptions import DeltaError
from logservice_client import LogClient, Shard
from logservice_client.environment import from_environment
from logservice_client.held_log import HeldLog
from logservice_client.output_lines import OutputLines
from logservice_client.tls import TlsFiles
from logservice_wire.errors import CorruptBlock, InvalidArgument, LogServiceError

from logservice_delta.table import LogName, LogTable, TableConflict
from logservice_delta.tail import PATIENCE_S, Pace, tail

MIB: Final = 1 << 20
HOLD_TTL_S: Final = 86_400
"""How long a hold stands when nobody renews it: a day, in which somebody starts the job again."""

EARLIEST: Final = "earliest"

FAILED, REFUSED = 1, 2


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line; the environment says what it leaves out."""
    parser = argparse.ArgumentParser(
        prog="logservice-table",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--endpoints", default="", help="host:port,host:port; else LOGSERVICE_ENDPOINTS"
    )
    parser.add_argument(
        "--log", required=True, action="append", dest="logs", help="a name or an id; repeatable"
    )
    parser.add_argument("--table", required=True, help="a directory or a URI")
    parser.add_argument("--job", default="records", help="each job has a position of its own")
    parser.add_argument(
        "--from",
        default=EARLIEST,
        dest="begin",
        metavar="earliest|LSN|TIME",
        type=begin_of,
        help="where a new job begins: at the oldest record there is, an LSN, or what was appended"
        " at a time (ISO 8601; without a zone it is UTC) or later",
    )
    parser.add_argument("--follow", action="store_true", help="go on at the tail, for ever")
    parser.add_argument("--commit-mib", type=float, default=64.0, help="commit with so much")
    parser.add_argument("--commit-s", type=float, default=10.0, help="or after so many seconds")
    parser.add_argument(
        "--hold", default="", metavar="NAME", help="keep what is not in the table from truncation"
    )
    parser.add_argument(
        "--leave-out-unreadable",
        action="store_true",
        help="no rows of blocks whose columns are not what their writer said, and a line for each",
    )
    parser.add_argument("--hold-ttl", type=int, default=HOLD_TTL_S, metavar="SECONDS")
    parser.add_argument(
        "--storage-option", action="append", default=[], metavar="NAME=VALUE", dest="storage"
    )
    parser.add_argument("--tls-ca", default="", metavar="FILE", help="PEM; else LOGSERVICE_TLS_CA")
    parser.add_argument("--tls-cert", default="", metavar="FILE")
    parser.add_argument("--tls-key", default="", metavar="FILE")
    parser.add_argument("--tls-server-name", default="", metavar="NAME")
    options = parser.parse_args(arguments)
    if not (options.commit_mib > 0 and options.commit_s > 0):
        parser.error("--commit-mib and --commit-s are above 0")
    if len(set(options.logs)) < len(options.logs):
        parser.error("--log: one is named twice")
    if any("=" not in one for one in options.storage):
        parser.error("--storage-option: NAME=VALUE")
    return options


def begin_of(text: str) -> str | int | datetime:
    """EARLIEST, an LSN, or a time. Raises argparse.ArgumentTypeError."""
    if text == EARLIEST:
        return text
    if text.isascii() and text.isdecimal() and int(text) > 0:
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is none of {EARLIEST}, an LSN from 1 on, a time (2026-11-25T16:40:00Z)"
        ) from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


async def first_lsn(log: Shard, begin: str | int | datetime) -> int:
    """The LSN with which a new job begins. Raises InvalidArgument for one that the log does not
    have, and errors of the log.
    """
    position = (await log.status(timeout=PATIENCE_S)).position
    if isinstance(begin, datetime):
        time_us = (begin - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        return (await log.lsn_at_time(max(time_us, 0), timeout=PATIENCE_S)).lsn
    if isinstance(begin, str):
        return position.first_lsn
    if not position.first_lsn <= begin <= position.applied_lsn + 1:
        raise InvalidArgument(
            f"log {log.shard_id} has LSNs {position.first_lsn} to {position.applied_lsn}, and"
            f" --from says {begin}; --from {EARLIEST} begins with {position.first_lsn}",
            field="from",
        )
    return begin


def connection(options: argparse.Namespace) -> tuple[str, TlsFiles | None]:
    """Endpoints and TLS. Raises InvalidArgument."""
    names = ("ca", "cert", "key", "server_name")
    environment = dict(os.environ)
    given = {f"LOGSERVICE_TLS_{one.upper()}": getattr(options, f"tls_{one}") for one in names}
    environment |= {name: value for name, value in given.items() if value}
    if options.endpoints:
        environment["LOGSERVICE_ENDPOINTS"] = options.endpoints
    return from_environment(environment)


class Job:
    """The run of a command line. Its lines go to `output`."""

    def __init__(self, options: argparse.Namespace, output: OutputLines) -> None:
        """Raises InvalidArgument."""
        self._options = options
        self._output = output
        self._address, self._tls = connection(options)
        self._pace = Pace(int(options.commit_mib * MIB), options.commit_s)
        self._storage = dict(one.split("=", 1) for one in options.storage)
        self._stop = asyncio.Event()
        self._tails = 0

    async def run(self) -> None:
        """Until all logs are through, or one of them fails."""
        loop, whole = asyncio.get_running_loop(), asyncio.current_task()
        assert whole is not None

        def end() -> None:
            # Before anything was read there is nothing to commit. The second signal waits for none.
            if self._stop.is_set() or not self._tails:
                whole.cancel()
            self._stop.set()

        for one in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(one, end)
        async with LogClient(self._address, tls=self._tls) as client, asyncio.TaskGroup() as group:
            cluster_id = (await client.hakeeper.cluster_state(timeout=PATIENCE_S)).cluster_id
            for name in self._options.logs:
                group.create_task(self._one(client, cluster_id, name))

    async def _one(self, client: LogClient, cluster_id: str, called: str) -> None:
        if called.isdecimal():
            log = client.shard(int(called))
        else:
            log = await client.log(called, timeout=PATIENCE_S)
        table = await self._open(log, LogName(cluster_id, log.shard_id, self._options.job))

        def committed(rows: int, last_lsn: int) -> None:
            self._say(log=called, rows=rows, last_lsn=last_lsn, version=table.version)

        def unreadable(records: int, error: CorruptBlock) -> None:
            self._say(log=called, left_out=records, lsn=error.number("first_lsn"), why=str(error))

        if not table.last_lsn:
            table.begin_at(await first_lsn(log, self._options.begin))
        hold: HeldLog | None = None
        if self._options.hold:
            hold = log.hold(self._options.hold, table.last_lsn + 1, ttl=self._options.hold_ttl)
            await hold.set()
        self._tails += 1
        self._say(log=called, from_lsn=table.last_lsn + 1, version=table.version)
        try:
            rows = await tail(
                log,
                table,
                until_tail=not self._options.follow,
                pace=self._pace,
                stop=self._stop,
                hold=hold,
                committed=committed,
                unreadable=unreadable if self._options.leave_out_unreadable else None,
            )
        finally:
            if hold is not None:
                await hold.leave()
        ended = "stopped" if self._stop.is_set() else "tail"
        self._say(
            log=called, ended=ended, rows=rows, last_lsn=table.last_lsn, version=table.version
        )

    async def _open(self, log: Shard, name: LogName) -> LogTable:
        status = await log.status(timeout=PATIENCE_S)
        lineage = log.lineage
        assert lineage is not None, "an answer was heard"
        return await asyncio.to_thread(
            LogTable.open,
            self._options.table,
            name,
            lineage,
            parent=status.lineage_parent,
            storage_options=self._storage,
        )

    def _say(self, **fields: object) -> None:
        """One line of JSON."""
        self._output.say(json.dumps(fields))


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point. 0: everything that was there is in the table; 1: it failed, and the table has
    what the last commit said; 2: the command line is wrong.
    """
    options = parse_arguments(sys.argv[1:] if arguments is None else arguments)
    try:
        asyncio.run(_run(options))
    except InvalidArgument as error:
        print(f"logservice-table: {error}", file=sys.stderr)
        return REFUSED
    except (LogServiceError, TableConflict, DeltaError, OSError) as error:
        print(f"logservice-table: {type(error).__name__}: {error}", file=sys.stderr)
        return FAILED
    except asyncio.CancelledError:
        print("logservice-table: stopped; the table has what was committed", file=sys.stderr)
        return FAILED
    return 0


async def _run(options: argparse.Namespace) -> None:
    """The first failure of a log, as itself."""
    try:
        with OutputLines(missing=lambda count: json.dumps({"lines_missing": count})) as output:
            await Job(options, output).run()
    except* (LogServiceError, TableConflict, DeltaError, OSError) as several:
        found: BaseException = several
        while isinstance(found, BaseExceptionGroup):
            found = found.exceptions[0]
        failure = found
    else:
        return
    raise failure


if __name__ == "__main__":
    sys.exit(main())
