"""`logservice archive restore` and `restore-all`: logs of a cluster from an archive."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click
from logservice_client import LogClient
from logservice_wire.digest import digest_text
from logservice_wire.errors import InvalidArgument

from logservice import bounds
from logservice.cli.processes.pyarrow_needed import need_pyarrow
from logservice.cli.shell import exit_codes
from logservice.cli.shell.output import output_option, say, show_fields, show_rows

if TYPE_CHECKING:
    from logservice.archive.restore_plan import Plan

_MIB = 1 << 20


_config = click.option(
    "-c",
    "--config",
    "config_path",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The archive's TOML file; its section cluster names the cluster to restore into.",
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
@click.option(
    "--from", "from_lsn", type=click.IntRange(1), help="First LSN; else the first there is."
)
@click.option("--to", "to_lsn", type=click.IntRange(1), help="Last LSN; else the last there is.")
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
    from logservice.archive.restore_plan import find, make_plan
    from logservice.archive.restoring import Restorer
    from logservice.archive.settings import files_of, keys_of, load

    settings = load(config_path)
    files = files_of(settings)
    read_keys = keys_of(settings)
    keys = None if read_keys is None else read_keys()
    source, named = find(files, log)

    def planned(target: targets.Target | None) -> Plan:
        begun = None if target is None else target.restoring
        plan = make_plan(
            files,
            source,
            keys,
            from_lsn=begun.base_lsn if begun and from_lsn is None else from_lsn,
            end_lsn=_end(begun.end_lsn if begun else None, to_lsn),
            timestamps_above=timestamps_above,
            progress=lambda row: say(
                f"checked LSNs {row.first_lsn} to {row.end_lsn - 1}", err=True
            ),
        )
        if begun and begun.digest != plan.digest:
            raise InvalidArgument("another restore has begun in the log", field="log")
        return plan

    async def work() -> dict[str, object]:
        async with LogClient(settings.cluster.endpoints, tls=settings.cluster.tls()) as client:
            wanted = name or named
            target = await targets.find(client, wanted, shard_id or 0)
            if give_up:
                if target is None:
                    raise InvalidArgument("there is no such log", field="log")
                await targets.give_up(client, target)
                return {"given_up": target.shard_id, "name": wanted}
            plan = await asyncio.to_thread(planned, target)
            shown = _described(plan, wanted)
            if check:
                return {"shard": None if target is None else target.shard_id, **shown}
            target = target or await targets.create(client, wanted, shard_id or 0)
            restorer = Restorer(
                client.shard(target.shard_id),
                files,
                plan,
                keys,
                bytes_per_s=round(mib_per_s * _MIB),
                progress=lambda lsn: say(_progress(plan, lsn), err=True),
            )
            fresh = await restorer.run()
            return {"shard": target.shard_id, **shown, "restored": fresh}

    show_fields(form, asyncio.run(work()))
    return exit_codes.OK


@click.command("restore-all")
@_config
@_rate
@click.option("--grants", is_flag=True, help="Give the archived grants, too.")
@click.option(
    "--check", is_flag=True, help="Check the archive, say what would be done, do nothing."
)
@output_option
def restore_all(config_path: Path, mib_per_s: float, grants: bool, check: bool, form: str) -> int:
    """Restore all logs into an empty cluster.

    They come with their ids, names, policies and labels, and the cluster gets its settings.
    Exit code 1 when a log could not be restored. Start the command again when it was ended: it goes
    on.
    """
    need_pyarrow()
    from logservice.archive.restore_all import RestoreAll
    from logservice.archive.settings import files_of, keys_of, load

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
                    "problem": one.problem,
                }
                for one in found
            ]

    rows = asyncio.run(work())
    show_rows(form, rows, "logs of the archive")
    return exit_codes.NEGATIVE if any(row["problem"] for row in rows) else exit_codes.OK


def _end(begun: int | None, to_lsn: int | None) -> int | None:
    return begun if to_lsn is None else to_lsn + 1


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
        "digest": digest_text(plan.digest),
    }
