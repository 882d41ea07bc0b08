"""`logservice archive restore` and `restore-all`: logs of a cluster from an archive."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from logservice_client import LogClient
from logservice_wire.digest import digest_text
from logservice_wire.errors import InvalidArgument

from logservice import bounds
from logservice.cli.processes.pyarrow_needed import need_pyarrow
from logservice.cli.shell import exit_codes
from logservice.cli.shell.config_option import config_option
from logservice.cli.shell.moment import moment_us
from logservice.cli.shell.output import output_option, say, show_fields, show_rows

if TYPE_CHECKING:
    from logservice_wire.v1 import log_pb2

    from logservice.archive.folder import Files
    from logservice.archive.restore_plan import Plan
    from logservice.sealing_keys import Keys

_MIB = 1 << 20


_config = config_option(
    "The archive's TOML file; its section cluster names the cluster to restore into."
)
_point = click.option(
    "--to",
    "point",
    help="Up to a time, as the log's append times say it: ISO 8601 (UTC, unless it names a zone) "
    "or seconds since 1970.",
)
_rate = click.option(
    "--mib-per-s",
    type=click.FloatRange(0.1, 10_000),
    default=bounds.RESTORE_BYTES_PER_S / _MIB,
    show_default=True,
    help="How fast.",
)


@click.command()
@_config
@click.argument("log")
@click.option("--as", "name", default="", help="Name of the restored log; else that of LOG.")
@click.option("--id", "shard_id", type=click.IntRange(1), help="Its id; else a new one.")
@click.option("--from-lsn", type=click.IntRange(1), help="First LSN; else the first there is.")
@click.option("--to-lsn", type=click.IntRange(1), help="Last LSN; else the last there is.")
@_point
@click.option(
    "--timestamps-above",
    type=click.IntRange(0),
    help="The log gives out timestamps above this one; else above those that the archive knows of.",
)
@_rate
@click.option(
    "--check", is_flag=True, help="Check the archive, say what would be done, do nothing."
)
@click.option("--give-up", is_flag=True, help="Delete the log that is not restored yet.")
@output_option
def restore(
    config_path: Path,
    log: str,
    name: str,
    shard_id: int | None,
    from_lsn: int | None,
    to_lsn: int | None,
    point: str | None,
    timestamps_above: int | None,
    mib_per_s: float,
    check: bool,
    give_up: bool,
    form: str,
) -> int:
    """Restore a log, as a new log of the cluster.

    LOG is its name or id in the archive. The archive is checked before anything is changed. The log
    serves nothing until it is complete and its digest is that of the archive. Start the command
    again when it was ended: it goes on.
    """
    need_pyarrow()
    from logservice.archive import restore_target as targets
    from logservice.archive.archived_blocks import ArchivedBlocks
    from logservice.archive.restore_plan import find
    from logservice.archive.restoring import Restorer
    from logservice.archive.settings import files_of, keys_of, load

    if point is not None and to_lsn is not None:
        raise click.UsageError("--to and --to-lsn both say where it ends")
    point_us = None if point is None else moment_us(point)
    settings = load(config_path)
    files = files_of(settings)
    read_keys = keys_of(settings)
    keys = None if read_keys is None else read_keys()
    source, named = find(files, log)
    wanted_range = _Range(from_lsn, to_lsn, point_us, timestamps_above)

    async def work() -> dict[str, object]:
        async with LogClient(settings.cluster.endpoints, tls=settings.cluster.tls()) as client:
            wanted = name or named
            target = await targets.find(client, wanted, shard_id or 0)
            if give_up:
                if target is None:
                    raise InvalidArgument("there is no such log", field="log")
                await targets.give_up(client, target)
                return {"given_up": target.shard_id, "name": wanted}
            begun = None if target is None else target.restoring
            plan = await asyncio.to_thread(_planned, files, source, keys, wanted_range, begun)
            shown = _described(plan, wanted)
            if check:
                return {"shard": None if target is None else target.shard_id, **shown}
            target = target or await targets.create(client, wanted, shard_id or 0)
            restorer = Restorer(
                client.shard(target.shard_id),
                plan.promise,
                ArchivedBlocks(files, plan, keys),
                bytes_per_s=round(mib_per_s * _MIB),
                progress=lambda lsn: say(_progress(plan, lsn), err=True),
            )
            fresh = await restorer.run()
            return {"shard": target.shard_id, **shown, "restored": fresh}

    show_fields(form, asyncio.run(work()))
    return exit_codes.OK


@click.command("restore-all")
@_config
@_point
@_rate
@click.option("--grants", is_flag=True, help="Give the archived grants, denials and quotas, too.")
@click.option(
    "--check", is_flag=True, help="Check the archive, say what would be done, do nothing."
)
@output_option
def restore_all(
    config_path: Path,
    point: str | None,
    mib_per_s: float,
    grants: bool,
    check: bool,
    form: str,
) -> int:
    """Restore all logs into an empty cluster.

    They come with their ids, names, policies and labels, and the cluster gets its settings. What
    was given out once, ids above all, is not given out again. With --to each log ends where it
    stood at that time. Exit code 1 when a log could not be restored.
    Start the command again when it was ended: it goes on.
    """
    need_pyarrow()
    from logservice.archive.restore_all import RestoreAll
    from logservice.archive.settings import files_of, keys_of, load

    point_us = None if point is None else moment_us(point)
    settings = load(config_path)
    files = files_of(settings)
    read_keys = keys_of(settings)
    keys = None if read_keys is None else read_keys()

    async def work() -> list[dict[str, object]]:
        async with LogClient(settings.cluster.endpoints, tls=settings.cluster.tls()) as client:
            whole = RestoreAll(
                client,
                files,
                keys,
                point_us=point_us,
                bytes_per_s=round(mib_per_s * _MIB),
                progress=lambda line: say(line, err=True),
            )
            found = await whole.run(check=check, grants=grants)
            return [
                {
                    "shard": one.shard_id,
                    "name": one.name,
                    "state": one.state,
                    "first_lsn": one.first_lsn,
                    "end_lsn": one.end_lsn,
                    "records": one.records,
                    "last_append_us": one.last_append_us,
                    "problem": one.problem,
                }
                for one in found
            ]

    rows = asyncio.run(work())
    main = ("shard", "name", "state", "first_lsn", "end_lsn", "records")
    show_rows(form, rows, "logs of the archive", main=main, if_any=("problem",))
    return exit_codes.NEGATIVE if any(row["problem"] for row in rows) else exit_codes.OK


@dataclass(frozen=True, slots=True)
class _Range:
    """What was said on the command line of what is restored; None: nothing."""

    from_lsn: int | None
    to_lsn: int | None
    point_us: int | None
    timestamps_above: int | None


def _planned(
    files: Files, source: int, keys: Keys | None, wanted: _Range, begun: log_pb2.Restoring | None
) -> Plan:
    """The plan; what was not said is as it was begun. Raises InvalidArgument for another one."""
    from logservice.archive.restore_plan import make_plan
    from logservice.archive.restoring import check_no_mirror

    if begun:
        check_no_mirror(begun)
    end_lsn = None if wanted.to_lsn is None else wanted.to_lsn + 1
    if begun and end_lsn is None and wanted.point_us is None:
        end_lsn = begun.end_lsn
    plan = make_plan(
        files,
        source,
        keys,
        from_lsn=begun.base_lsn if begun and wanted.from_lsn is None else wanted.from_lsn,
        end_lsn=end_lsn,
        point_us=wanted.point_us,
        timestamps_above=wanted.timestamps_above,
        progress=lambda row: say(f"checked LSNs {row.first_lsn} to {row.end_lsn - 1}", err=True),
    )
    if begun and begun.digest != plan.digest:
        raise InvalidArgument(
            f"another restore has begun in the log: LSNs {begun.base_lsn} to {begun.end_lsn - 1}",
            field="log",
        )
    return plan


def _progress(plan: Plan, lsn: int) -> str:
    last = plan.end_lsn - 1
    return f"restored up to LSN {lsn - 1} of {last} ({100 * (lsn - 1) // last} %)"


def _described(plan: Plan, name: str) -> dict[str, object]:
    return {
        "name": name,
        "source": plan.shard_id,
        "first_lsn": plan.base_lsn,
        "end_lsn": plan.end_lsn,
        "records": plan.records,
        "gap_lsns": plan.gap_lsns,
        "value_bytes": plan.value_bytes,
        "writer_epoch": plan.writer_epoch,
        "append_times": plan.timed,
        "last_append_us": plan.last_time_us or None,
        "digest": digest_text(plan.digest),
    }
