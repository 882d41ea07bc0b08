"""`logservice archive`: the process that archives a cluster's logs, and what it has made."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from pathlib import Path
from typing import Any

import click
from logservice_client import LogClient
from logservice_wire.errors import LogServiceError

from logservice.cli.processes.archive_restore import restore, restore_all
from logservice.cli.processes.pyarrow_needed import need_pyarrow
from logservice.cli.shell import exit_codes
from logservice.cli.shell.config_option import config_option
from logservice.cli.shell.output import output_option, say, show_rows
from logservice.safe_text import safe_text
from logservice.server import log_lines

_config = config_option("TOML file; deploy/archive.example.toml shows every key.")


@click.group()
def archive() -> None:
    """Archive the logs of a cluster, look at the archive, or restore a log from it."""


archive.add_command(restore)
archive.add_command(restore_all)


@archive.command()
@_config
@click.option("--once", is_flag=True, help="Archive what there is now, and end.")
@click.option(
    "--until-input-ends",
    is_flag=True,
    help="End when standard input, a pipe, ends as well: with the program that holds it.",
)
def run(config_path: Path, once: bool, until_input_ends: bool) -> int:
    """Archive the chosen logs until SIGTERM or SIGINT.

    With --once, exit code 1 when a name is chosen and no open log has it.
    """
    need_pyarrow()
    from logservice.archive.running import Archiver
    from logservice.archive.settings import files_of, load

    settings = load(config_path)
    files = files_of(settings)

    async def main() -> tuple[int, list[str]]:
        async with LogClient(settings.cluster.endpoints, tls=settings.cluster.tls()) as client:
            archiver = Archiver(client, settings, files)
            if once:
                return await archiver.run_once()
            running = asyncio.ensure_future(archiver.run())
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, running.cancel)
            if until_input_ends:
                asyncio.get_running_loop().add_reader(0, running.cancel)
            with contextlib.suppress(asyncio.CancelledError):
                await running
            return 0, []

    with log_lines.to_stderr(log_lines.PLAIN, logging.WARNING):
        logs, unmatched = asyncio.run(main())
    if once:
        say(f"{logs} logs are archived")
    if unmatched:
        # A backup of nothing must not look like one.
        names = ", ".join(map(safe_text, unmatched))
        click.echo(f"no open log is called so: {names}", err=True)
        return exit_codes.NEGATIVE
    return exit_codes.OK


@archive.command()
@_config
@click.option("--live", is_flag=True, help="Ask the cluster how far each log is by now.")
@output_option
def status(config_path: Path, live: bool, form: str) -> int:
    """Show what the archive has of each log.

    Exit code 1 when rows are missing or damaged; objects are not read.
    """
    need_pyarrow()
    from logservice.archive.manifest import marked, shard_ids
    from logservice.archive.settings import files_of, load
    from logservice.archive.verifying import Contents, contents

    settings = load(config_path)
    files = files_of(settings)
    marked(files)
    found = [contents(files, shard_id) for shard_id in shard_ids(files)]

    async def ends() -> dict[int, int | None]:
        async with LogClient(settings.cluster.endpoints, tls=settings.cluster.tls()) as client:
            return {one.shard_id: await _end(client, one.shard_id) for one in found}

    lives = asyncio.run(ends()) if live else {}

    def row(one: Contents) -> dict[str, object]:
        shown = _described(one) | {"unnamed_objects": one.unnamed_objects}
        if live:
            end_lsn = lives[one.shard_id]
            shown["behind"] = None if end_lsn is None else max(0, end_lsn - (one.end_lsn or 1))
        return shown | {"problems": one.problems}

    show_rows(form, [row(one) for one in found], "archived logs", main=_MAIN, if_any=_IF_ANY)
    return exit_codes.NEGATIVE if any(one.problems for one in found) else exit_codes.OK


@archive.command()
@_config
@click.option("--live", is_flag=True, help="Compare with the cluster's logs, too.")
@click.option(
    "--textfile",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the figures for Prometheus there, at the end (NAME.prom of the node exporter).",
)
@output_option
def verify(config_path: Path, live: bool, textfile: Path | None, form: str) -> int:
    """Read every object again, and compare its digest.

    Exit code 1 when anything is not what was archived, or differs from the log.
    """
    need_pyarrow()
    from logservice.archive.manifest import Row, marked, shard_ids
    from logservice.archive.settings import files_of, keys_of, load
    from logservice.archive.verify_figures import write_figures
    from logservice.archive.verifying import Contents
    from logservice.archive.verifying import verify as verify_log

    settings = load(config_path)
    files = files_of(settings)
    marked(files)

    read_keys = keys_of(settings)
    keys = None if read_keys is None else read_keys()

    def progress(row: Row) -> None:
        say(f"log {row.shard_id}: LSNs {row.first_lsn} to before {row.end_lsn}", err=True)

    async def main() -> list[Contents]:
        async with contextlib.AsyncExitStack() as closing:
            client = None
            if live:
                client = await closing.enter_async_context(
                    LogClient(settings.cluster.endpoints, tls=settings.cluster.tls())
                )
            return [
                await verify_log(files, shard_id, client, keys, progress)
                for shard_id in shard_ids(files)
            ]

    found = asyncio.run(main())
    rows: list[dict[str, Any]] = []
    for one in found:
        compared = {"compared": one.compared} if live else {}
        rows.append({**_described(one), **compared, "problems": one.problems})
    if textfile is not None:
        write_figures(textfile, found, time.time())
    show_rows(form, rows, "verified logs", main=_MAIN, if_any=_IF_ANY)
    return exit_codes.NEGATIVE if any(one.problems for one in found) else exit_codes.OK


async def _end(client: LogClient, shard_id: int) -> int | None:
    """The LSN behind the log's last record; None when nobody says."""
    try:
        return (await client.shard(shard_id).status()).position.applied_lsn + 1
    except LogServiceError:
        return None


_MAIN = ("shard", "name", "first_lsn", "end_lsn", "object_bytes", "archived_us", "behind")
_IF_ANY = ("compared", "missing_lsns", "unnamed_objects", "problems")


def _described(one: Any) -> dict[str, object]:
    return {
        "shard": one.shard_id,
        "name": one.name,
        "first_lsn": one.first_lsn,
        "end_lsn": one.end_lsn,
        "ranges": one.ranges,
        "records": one.records,
        "gap_lsns": one.gap_lsns,
        "missing_lsns": one.missing_lsns,
        "value_bytes": one.value_bytes,
        "object_bytes": one.object_bytes,
        "archived_us": one.archived_us,
    }
