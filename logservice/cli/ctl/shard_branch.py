"""`logctl shard branch`: a new shard that begins as another one that lives."""

from __future__ import annotations

from contextlib import AsyncExitStack

import click
from logservice_client import LogClient, Shard
from logservice_client.tls import tls_from_files
from logservice_wire.digest import digest_text
from logservice_wire.errors import InvalidArgument

from logservice import bounds
from logservice.archive import restore_target as targets
from logservice.archive.branching import Branch, Wanted, as_begun, held_branch
from logservice.archive.living_blocks import LivingBlocks
from logservice.archive.restoring import Restorer
from logservice.cli.ctl.client_session import Session, pass_session
from logservice.cli.ctl.shard_argument import shard_argument
from logservice.cli.shell.moment import moment_us
from logservice.cli.shell.output import output_option, say, show_fields

_MIB = 1 << 20


@click.command()
@shard_argument("shard_id")
@click.argument("name")
@click.option("--id", "new_id", type=click.IntRange(1), help="Its id; else a new one.")
@click.option("--from-lsn", type=click.IntRange(1), help="First LSN; else the first there is.")
@click.option("--to-lsn", type=click.IntRange(1), help="Last LSN; else the last there is.")
@click.option("--to", "point", help="Up to a time, as the shard's append times say it.")
@click.option("--into", default="", help="Stores of another cluster, which gets the new shard.")
@click.option("--into-tls-ca", default="", help="PEM file: who signed their certificates.")
@click.option("--into-tls-cert", default="", help="PEM file: your certificate there.")
@click.option("--into-tls-key", default="", help="PEM file: its key.")
@click.option("--into-tls-server-name", default="", help="Name in their certificates.")
@click.option(
    "--mib-per-s",
    type=click.FloatRange(0.1, 10_000),
    default=bounds.RESTORE_BYTES_PER_S / _MIB,
    show_default=True,
    help="How fast.",
)
@click.option("--check", is_flag=True, help="Say what would be done, create nothing.")
@click.option("--give-up", is_flag=True, help="Delete the shard NAME that is not complete yet.")
@output_option
@pass_session
def branch(
    session: Session,
    /,
    shard_id: int,
    name: str,
    new_id: int | None,
    from_lsn: int | None,
    to_lsn: int | None,
    point: str | None,
    into: str,
    mib_per_s: float,
    check: bool,
    give_up: bool,
    form: str,
    **into_tls: str,
) -> None:
    """Make a new shard NAME that begins as SHARD.

    It has the same records, gaps and append times at the same LSNs, and is another lineage. It
    serves nothing until it is complete and has the digest of the source, which goes on meanwhile.
    Start the command again when it was ended: it goes on.
    """
    if point is not None and to_lsn is not None:
        raise click.UsageError("--to and --to-lsn both say where it ends")
    tls = tls_from_files(*(into_tls[f"into_tls_{one}"] for one in _TLS))
    if tls is not None and not into:
        raise click.UsageError("--into-tls-... is about the stores of --into")
    wanted = Wanted(
        from_lsn,
        None if to_lsn is None else to_lsn + 1,
        None if point is None else moment_us(point),
    )

    async def work(client: LogClient) -> dict[str, object]:
        async with AsyncExitStack() as closing:
            other = client
            if into:
                other = await closing.enter_async_context(LogClient(into, tls=tls))
            target = await targets.find(other, name, new_id or 0)
            if target is not None and other is client and target.shard_id == shard_id:
                raise InvalidArgument("a shard is no branch of itself", field="name")
            if give_up:
                if target is None:
                    raise InvalidArgument("there is no such shard", field="name")
                await targets.give_up(other, target)
                return {"given_up": target.shard_id, "name": name}
            begun = wanted
            if target is not None:
                begun = as_begun(wanted, await other.shard(target.shard_id).status())
            source = client.shard(shard_id)
            async with held_branch(source, begun) as found:
                shown = {"name": name, "source": shard_id, **_described(found)}
                if check:
                    return {"shard": None if target is None else target.shard_id, **shown}
                target = target or await targets.create(other, name, new_id or 0)
                copy = other.shard(target.shard_id)
                fresh = await _bring(source, copy, found, round(mib_per_s * _MIB))
                return {"shard": target.shard_id, **shown, "branched": fresh}

    show_fields(form, session.run(work))


_TLS = ("ca", "cert", "key", "server_name")


async def _bring(source: Shard, copy: Shard, found: Branch, bytes_per_s: int) -> bool:
    last = found.promise.end_lsn - 1
    restorer = Restorer(
        copy,
        found.promise,
        LivingBlocks(source, found.span),
        bytes_per_s=bytes_per_s,
        progress=lambda lsn: say(f"up to LSN {lsn - 1} of {last}", err=True),
    )
    return await restorer.run()


def _described(found: Branch) -> dict[str, object]:
    promise = found.promise
    return {
        "first_lsn": promise.base_lsn,
        "end_lsn": promise.end_lsn,
        "records": found.found.records,
        "gap_lsns": found.found.gap_lsns,
        "value_bytes": found.found.value_bytes,
        "writer_epoch": promise.writer_epoch,
        "append_times": found.timed,
        "digest": digest_text(promise.digest),
    }
