"""`logservice mirror`: the process that mirrors logs, how they stand, and what ends a mirror."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import click
from logservice_client import LogClient
from logservice_wire.errors import InvalidArgument, LogServiceError

from logservice import bounds
from logservice.cli.shell import exit_codes
from logservice.cli.shell.config_option import config_option
from logservice.cli.shell.output import output_option, say, show_fields, show_rows
from logservice.mirror.mirroring import Mirror
from logservice.mirror.promoting import Promoted, Promotion
from logservice.mirror.running import Mirrors, pair_of
from logservice.mirror.settings import Settings, load
from logservice.mirror.standing import Standing, standing
from logservice.server import log_lines

_config = config_option("TOML file; deploy/mirror.example.toml shows every key.")


@click.group()
def mirror() -> None:
    """Keep standby copies of logs in a second cluster, and promote them."""


@mirror.command()
@_config
def run(config_path: Path) -> int:
    """Mirror the logs of the configuration until SIGTERM or SIGINT.

    It says on stderr how far it is. Whatever fails is tried again. A log that was promoted, or can
    not be mirrored any more, is left; when none goes on the command ends, with exit code 1 unless
    all were promoted.
    """
    settings = load(config_path)
    logging.getLogger("logservice.mirror").setLevel(logging.INFO)

    async def main() -> bool:
        async with _both(settings) as (source, target):
            mirrors = Mirrors(source, target, settings)
            running = asyncio.ensure_future(mirrors.run())
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, running.cancel)
            with contextlib.suppress(asyncio.CancelledError):
                return await running
            return True

    with log_lines.to_stderr(log_lines.PLAIN, logging.WARNING):
        return exit_codes.OK if asyncio.run(main()) else exit_codes.NEGATIVE


@mirror.command()
@_config
@output_option
def status(config_path: Path, form: str) -> int:
    """Show how far each mirror is, as both clusters say it.

    It needs no running `logservice mirror run`. Exit code 1 when one needs somebody.
    """
    settings = load(config_path)

    async def main() -> list[Standing]:
        async with _both(settings) as (source, target):
            pairs = [pair_of(settings, name) for name in settings.logs]
            hold = settings.mirror.hold
            return await asyncio.gather(*(standing(source, target, one, hold) for one in pairs))

    found = asyncio.run(main())
    rows = [
        {
            "log": one.pair.name,
            "as": one.pair.into,
            "state": one.state,
            "first_lsn": one.first_lsn,
            "next_lsn": one.next_lsn,
            "source_end_lsn": one.source_end_lsn,
            "behind": one.behind,
            "source_closed": one.source_closed,
            "hold_lsn": one.hold_lsn,
            "problem": one.problem,
        }
        for one in found
    ]
    columns = ("log", "as", "state", "next_lsn", "source_end_lsn", "behind")
    show_rows(form, rows, "mirrors", main=columns, if_any=("source_closed", "problem"))
    return exit_codes.NEGATIVE if any(one.problem for one in found) else exit_codes.OK


@mirror.command()
@_config
@click.argument("log")
@click.option("--check", is_flag=True, help="Bring it to its source's end, compare, open nothing.")
@click.option(
    "--source-is-not-fenced-and-lsns-may-be-missing",
    "forced_name",
    metavar="LOG",
    help="Open it where it is, whatever became of its source; say the log's name once more.",
)
@click.option(
    "--timestamps-above",
    type=click.IntRange(0),
    help="Forced only: the log gives out timestamps above this one; else none any more.",
)
@click.option(
    "--compare-for",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="Forced only: how long a source that answers is compared before; 0: not at all, and a "
    f"mirror that differs is opened. Default {bounds.MIRROR_FORCED_COMPARE_S:g}.",
)
@output_option
def promote(
    config_path: Path,
    log: str,
    check: bool,
    forced_name: str | None,
    timestamps_above: int | None,
    compare_for: float | None,
    form: str,
) -> int:
    """Make a mirror a log of its own.

    LOG is its name in the source. All that can be checked and compared is, while the source is
    still appended to. Then the source is closed for ever, and the mirror opens with exactly what
    it had. Start the command again when it was ended: it goes on. When the source is gone for
    good, a mirror is opened by force, without what was not mirrored; its source is not fenced, and
    if it lives, goes on.
    """
    settings = load(config_path)
    if log not in settings.logs:
        raise InvalidArgument(f"the configuration does not name {log}", field="log")
    if forced_name is not None and (forced_name != log or check):
        raise click.UsageError("a forced promote names the log twice, and checks nothing")
    if timestamps_above is not None and forced_name is None:
        raise click.UsageError("--timestamps-above is for a forced promote: else the source says")
    if compare_for is not None and forced_name is None:
        raise click.UsageError("--compare-for is for a forced promote: a planned one compares all")
    compare_s = bounds.MIRROR_FORCED_COMPARE_S if compare_for is None else compare_for

    async def main() -> dict[str, object]:
        async with _both(settings) as (source, target):
            pair = pair_of(settings, log)
            one = Mirror(source, target, pair, hold=settings.mirror.hold, keeps_hold=False)
            promotion = Promotion(one, target, say=lambda line: say(line, err=True))
            try:
                if check:
                    done = await promotion.check() is not None
                    return {"log": log, "as": pair.into, "next_lsn": one.next_lsn, "promoted": done}
                if forced_name is None:
                    found = await promotion.planned()
                else:
                    found = await promotion.forced(timestamps_above, compare_s)
                    say(_forced_text(log, found), err=True)
            except (LogServiceError, OSError, asyncio.CancelledError):
                say(promotion.standing, err=True)
                raise
            return {
                "log": log,
                "as": pair.into,
                "shard": found.shard_id,
                "last_mirrored_lsn": found.end_lsn - 1,
                "next_lsn": found.end_lsn,
                "source_end_lsn": found.source_end_lsn,
                "compared_to_lsn": found.compared.equal_lsn - 1
                if found.compared is not None and found.compared.equal_lsn
                else None,
                "closed_s": None if found.closed_s is None else round(found.closed_s, 3),
                "writer_epoch": found.writer_epoch,
                "promoted": found.fresh,
            }

    show_fields(form, asyncio.run(main()))
    return exit_codes.OK


def _forced_text(log: str, found: Promoted) -> str:
    """What a person has to know of a forced promote."""
    last_lsn = found.end_lsn - 1
    known = (
        "the source does not say where it ends"
        if found.source_end_lsn is None
        else f"the source said a moment ago that its last LSN is {found.source_end_lsn - 1}"
    )
    return (
        f"{_compared_text(found)}The last mirrored LSN is {last_lsn}; {known}. What {log} "
        f"acknowledged behind LSN {last_lsn} is missing here, and nobody knows what is behind. The "
        "source is not fenced: if it lives, its writer goes on there. Stop it."
    )


def _compared_text(found: Promoted) -> str:
    """What is the same, what was not compared, and why."""
    compared = found.compared
    if compared is None:
        return "It was opened before. "
    if not compared.equal_lsn:
        why = compared.why or "the two have no LSN in common"
        return f"Nothing was compared with the source: {why}. "
    text = (
        f"Equal up to LSN {compared.equal_lsn - 1}: from LSN {compared.from_lsn} on both have the "
        "same. "
    )
    if compared.equal_lsn == found.end_lsn:
        return text
    if compared.source_end_lsn == compared.equal_lsn and not compared.why:
        why = "the source does not have them"
    else:
        why = compared.why or "they were mirrored since"
    return f"{text}Not compared: LSNs {compared.equal_lsn} to {found.end_lsn - 1}, because {why}. "


@asynccontextmanager
async def _both(settings: Settings) -> AsyncIterator[tuple[LogClient, LogClient]]:
    async with (
        LogClient(settings.source.endpoints, tls=settings.source.tls()) as source,
        LogClient(settings.target.endpoints, tls=settings.target.tls()) as target,
    ):
        yield source, target
