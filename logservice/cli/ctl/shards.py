"""`logctl truncate`, `writer`, `hold`, `timestamps`: the state of one shard."""

from __future__ import annotations

import click
from logservice_client import LogClient

from logservice.cli.ctl.client_session import Session, pass_session
from logservice.cli.ctl.completed_names import holds
from logservice.cli.ctl.shard_argument import shard_argument
from logservice.cli.shell.output import Row, output_option, show_fields, show_rows

_shard = shard_argument("shard")
_hold_name = click.argument("name", shell_complete=holds)


@click.command()
@_shard
@click.argument("lsn", type=click.IntRange(min=1))
@click.option(
    "--epoch",
    type=click.IntRange(min=0),
    default=0,
    help="The writer's epoch; 0 if none was ever granted.",
)
@output_option
@pass_session
def truncate(session: Session, shard: int, lsn: int, epoch: int, form: str) -> None:
    """Let every record up to an LSN go.

    The record of LSN goes, too. Holds may keep some of them.
    """

    async def work(client: LogClient) -> int:
        log = client.shard(shard)
        log.writer_epoch = epoch
        return await log.truncate(lsn, timeout=session.timeout_s)

    show_fields(form, {"truncated_lsn": session.run(work)})


_override = click.option(
    "--override",
    is_flag=True,
    help="Even if it belongs to another identity; needs the role admin over the shard.",
)


@click.group()
def writer() -> None:
    """Take the right to append, or give it back.

    It is granted by compare-and-swap on the writer epoch.
    """


@writer.command()
@_shard
@click.argument("holder")
@click.option(
    "--expected-epoch",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="The epoch as you know it; 0 when none was ever granted.",
)
@click.option("--takeover", is_flag=True, help="Whoever holds it, and whatever the epoch is.")
@_override
@output_option
@pass_session
def acquire(
    session: Session,
    shard: int,
    holder: str,
    expected_epoch: int,
    takeover: bool,
    override: bool,
    form: str,
) -> None:
    """Become the writer; print the new epoch."""

    async def work(client: LogClient) -> int:
        return await client.shard(shard).acquire_writer(
            holder,
            expected_epoch=expected_epoch,
            takeover=takeover,
            override=override,
            timeout=session.timeout_s,
        )

    show_fields(form, {"epoch": session.run(work), "holder": holder})


@writer.command()
@_shard
@click.argument("epoch", type=click.IntRange(min=1))
@_override
@output_option
@pass_session
def release(session: Session, shard: int, epoch: int, override: bool, form: str) -> None:
    """Give EPOCH back; nobody appends until the next grant."""
    session.run(
        lambda client: client.shard(shard).release_writer(
            epoch=epoch, override=override, timeout=session.timeout_s
        )
    )
    show_fields(form, {"released_epoch": epoch})


@click.group()
def hold() -> None:
    """Keep records from an LSN on, whatever is truncated."""


@hold.command("set")
@_shard
@_hold_name
@click.argument("lsn", type=click.IntRange(min=1))
@click.option(
    "--ttl",
    type=click.IntRange(min=0),
    default=0,
    metavar="SECONDS",
    help="Let it expire unless it is set or renewed in that time; 0: never.",
)
@_override
@output_option
@pass_session
def set_hold(
    session: Session, shard: int, name: str, lsn: int, ttl: int, override: bool, form: str
) -> None:
    """Keep the records from LSN on, or move the hold there."""
    session.run(
        lambda client: client.shard(shard).set_hold(
            name, lsn, ttl=ttl, override=override, timeout=session.timeout_s
        )
    )
    show_fields(form, {"name": name, "lsn": lsn, "ttl_s": ttl or None})


@hold.command("renew")
@_shard
@_hold_name
@output_option
@pass_session
def renew_hold(session: Session, shard: int, name: str, form: str) -> None:
    """Let a hold live for its time again.

    It stays where it is. A hold that has expired is not set again.
    """
    lsn = session.run(
        lambda client: client.shard(shard).renew_hold(name, timeout=session.timeout_s)
    )
    show_fields(form, {"renewed": name, "lsn": lsn})


@hold.command("list")
@_shard
@output_option
@pass_session
def list_holds(session: Session, shard: int, form: str) -> None:
    """List a shard's holds, whose they are, and how old.

    `age` counts from when the hold was last set or renewed, as the store that answers knows: at
    least so long. `keeps` counts records whose truncation was asked for.
    """

    async def work(client: LogClient) -> list[Row]:
        found = await client.shard(shard).status(timeout=session.timeout_s)
        return [
            {
                "name": item.name,
                "lsn": item.lsn,
                "owner": item.owner,
                "age_s": round(item.age_s),
                "ttl_s": item.ttl_s or None,
                "expires_in_s": (
                    round(item.expires_in_s) if item.HasField("expires_in_s") else None
                ),
                "keeps": max(0, found.requested_truncation_lsn - item.lsn + 1),
            }
            for item in found.holds
        ]

    main = ("name", "lsn", "keeps", "age_s", "expires_in_s", "owner")
    show_rows(form, session.run(work), main=main)


@hold.command("release")
@_shard
@_hold_name
@_override
@output_option
@pass_session
def release_hold(session: Session, shard: int, name: str, override: bool, form: str) -> None:
    """Let a hold go."""
    session.run(
        lambda client: client.shard(shard).release_hold(
            name, override=override, timeout=session.timeout_s
        )
    )
    show_fields(form, {"released": name})


@click.command()
@_shard
@click.argument("count", type=click.IntRange(min=1), default=1)
@output_option
@pass_session
def timestamps(session: Session, shard: int, count: int, form: str) -> None:
    """Allocate timestamps that nobody else gets.

    They are COUNT timestamps, from `first` up to but without `next`.
    """
    found = session.run(
        lambda client: client.shard(shard).allocate_timestamps(count, timeout=session.timeout_s)
    )
    show_fields(form, {"first": found.start, "next": found.stop})
