"""`logctl shard`: the life of one shard, from its creation to its deletion."""

from __future__ import annotations

import math
from collections.abc import Mapping

import click
from logservice_client import LogClient
from logservice_wire.v1 import hakeeper_pb2

from logservice import bounds
from logservice.cli.ctl import shard_adoption, shard_branch, shard_replicas, shard_show
from logservice.cli.ctl.client_session import Session, pass_session
from logservice.cli.ctl.completed_names import shards
from logservice.cli.ctl.label_option import label_option
from logservice.cli.ctl.shard_argument import shard_argument
from logservice.cli.shell.duration import duration
from logservice.cli.shell.output import output_option, show_fields

_shard = shard_argument("shard_id")
_NUMBER = click.IntRange(0, 2**62)
"""What HAKeeper takes for a number (`hakeeper.commands.wire_types`)."""


def _name(context: click.Context, option: click.Parameter, given: str) -> str:
    """A name that a SHARD on a command line can be: digits alone are an id there."""
    if given.isdecimal():
        raise click.BadParameter("digits alone would be taken for an id", context, option)
    return given


def _learners(
    context: click.Context, option: click.Parameter, given: tuple[str, ...]
) -> dict[str, int] | None:
    """``zone=number`` words, and a number alone for anywhere; None when there are no words."""
    found: dict[str, int] = {}
    for word in given:
        zone, _, number = word.rpartition("=")
        if not number.isdecimal() or zone in found:
            text = f"expected zone=number or a number, each zone once, not {word!r}"
            raise click.BadParameter(text, context, option)
        found[zone] = int(number)
    return {zone: number for zone, number in found.items() if number} if given else None


def _age(context: click.Context, option: click.Parameter, given: str | None) -> int | None:
    """A length of time in whole seconds; ``0`` for none."""
    if given is None or given == "0":
        return None if given is None else 0
    return math.ceil(duration(given))


def _policy_options(command: click.decorators.FC) -> click.decorators.FC:
    for option in (
        click.option(
            "--protect/--no-protect", "protected", default=None, help="Never deleted, not by force."
        ),
        click.option(
            "--retention-age",
            "retention_age_s",
            callback=_age,
            metavar="TIME",
            help="Let records go that are older, such as 7d; 0: keep them.",
        ),
        click.option(
            "--retention-bytes",
            type=_NUMBER,
            help="Let records go behind the newest so many bytes; 0: keep them.",
        ),
        click.option(
            "--retention-records",
            type=_NUMBER,
            help="Let records go behind the newest so many; 0: keep them.",
        ),
        click.option(
            "--max-bytes-per-s",
            type=_NUMBER,
            help="Appends beyond wait, then get BUSY; 0: no limit.",
        ),
        click.option(
            "--max-records-per-s",
            type=_NUMBER,
            help="Appends beyond wait, then get BUSY; 0: no limit.",
        ),
        click.option(
            "--weight",
            type=click.IntRange(1, bounds.SHARD_WEIGHT_MAX),
            help="Share of a disk that more shards want than it takes; usual: 100.",
        ),
        click.option("--leader-zone", help="Where the leader should be; '' for anywhere."),
        click.option(
            "--zone-rule",
            type=click.Choice(["none", "best-effort", "hard"]),
            help="Whether a zone may hold a majority of the replicas.",
        ),
        click.option(
            "--learners",
            multiple=True,
            callback=_learners,
            metavar="[ZONE=]N",
            help="Read replicas without a vote, in a zone or anywhere; all of them. 0 for none.",
        ),
    ):
        command = option(command)
    return command


def _policy(
    policy: hakeeper_pb2.ShardPolicy, wanted: Mapping[str, object]
) -> hakeeper_pb2.ShardPolicy | None:
    """`policy` with what is wanted of it; None when nothing is."""
    given = {name: value for name, value in wanted.items() if value is not None}
    for name, value in given.items():
        if isinstance(value, Mapping):
            getattr(policy, name).clear()
            getattr(policy, name).update(value)
        else:
            setattr(policy, name, value)
    return policy if given else None


@click.group()
def shard() -> None:
    """Create, show, change, move, close or delete one shard."""


@shard.command()
@click.argument("name", default="", callback=_name)
@click.option("--id", "shard_id", type=click.IntRange(min=1), help="Default: the next free one.")
@click.option("--replicas", type=click.IntRange(1, 9), help="Default: the cluster's.")
@_policy_options
@label_option("One by which it can be found; repeatable.")
@click.option(
    "--request-id", default="", help="Say the same one again after an unknown outcome: one shard."
)
@click.option(
    "--witnesses",
    type=click.IntRange(min=0),
    help="So many of the replicas vote and store no records; needs --waive-g1.",
)
@click.option(
    "--waive-g1",
    is_flag=True,
    help="An acknowledged append may be on one store's disk only. If that is lost, so is it.",
)
@click.option("--no-wait", is_flag=True, help="Do not wait until it accepts appends.")
@output_option
@pass_session
def create(
    session: Session,
    /,
    shard_id: int | None,
    name: str,
    replicas: int | None,
    labels: dict[str, str],
    request_id: str,
    witnesses: int | None,
    waive_g1: bool,
    no_wait: bool,
    form: str,
    **wanted: object,
) -> None:
    """Create a shard; print its id once it accepts appends.

    Without NAME it is called shard-<id>.
    """
    policy = _policy(hakeeper_pb2.ShardPolicy(zone_rule="best-effort"), wanted)

    async def work(client: LogClient) -> int:
        created = await client.hakeeper.create_shard(
            shard_id=shard_id or 0,
            name=name,
            replicas=replicas or 0,
            policy=policy,
            labels=labels,
            request_id=request_id,
            witnesses=witnesses or 0,
            waive_g1=waive_g1,
            timeout=session.timeout_s,
        )
        if not no_wait:
            await client.shard(created).connect(timeout=session.timeout_s)
        return created

    show_fields(form, {"shard": session.run(work)})


@shard.command()
@click.argument("name", shell_complete=shards)
@output_option
@pass_session
def resolve(session: Session, name: str, form: str) -> None:
    """Print the id of the living shard called NAME."""
    found = session.run(
        lambda client: client.hakeeper.resolve_shard(name, timeout=session.timeout_s)
    )
    show_fields(form, {"shard": found.shard_id, "name": found.name, "state": found.state})


@shard.command("set")
@_shard
@click.option(
    "--name",
    default="",
    callback=_name,
    help="Another name; grants that speak of names follow it.",
)
@click.option("--replicas", type=click.IntRange(1, 9), help="An odd number; they come one by one.")
@_policy_options
@label_option("Set it; repeatable.")
@click.option("--unlabel", multiple=True, help="Remove the label of that key.")
@output_option
@pass_session
def set_wish(
    session: Session,
    /,
    shard_id: int,
    name: str,
    replicas: int | None,
    labels: dict[str, str],
    unlabel: tuple[str, ...],
    form: str,
    **wanted: object,
) -> None:
    """Change what is wanted of SHARD; what is not named stays.

    Refused with STALE_EPOCH when somebody else changed the shard at the same time.
    """

    async def work(client: LogClient) -> int:
        now = await client.hakeeper.shard_info(shard_id, fresh=True, timeout=session.timeout_s)
        kept = {key: text for key, text in now.labels.items() if key not in unlabel}
        return await client.hakeeper.change_shard(
            shard_id,
            name=name,
            replicas=replicas or 0,
            policy=_policy(now.policy, wanted),
            labels={**kept, **labels} if labels or unlabel else None,
            revision=now.revision,
            timeout=session.timeout_s,
        )

    show_fields(form, {"shard": shard_id, "revision": session.run(work)})


@shard.command()
@_shard
@output_option
@pass_session
def close(session: Session, shard_id: int, form: str) -> None:
    """End SHARD: nothing is appended any more, for ever.

    Reading and truncation go on.
    """
    found = session.run(lambda client: client.shard(shard_id).close_log(timeout=session.timeout_s))
    fields = {
        "shard": shard_id,
        "end_lsn": found.end_lsn,
        "closed_index": found.closed_index,
        "was_closed": found.duplicate,
    }
    show_fields(form, fields)


@shard.command()
@_shard
@click.option("--name", required=True, help="The shard's name, so that nobody deletes another one.")
@click.option("--force", is_flag=True, help="Also when it has holds, or is broken.")
@click.option("--no-wait", is_flag=True, help="Do not wait until every live store removed it.")
@output_option
@pass_session
def delete(
    session: Session, shard_id: int, name: str, force: bool, no_wait: bool, form: str
) -> None:
    """Delete SHARD for ever: its records, replicas and id.

    It is closed first. A shard that has holds is deleted only by force, one that is protected not
    even then: first `logctl shard set SHARD --no-protect`. A store that is away removes its replica
    when it comes back.
    """

    async def work(client: LogClient) -> None:
        await client.hakeeper.delete_shard(shard_id, name, force=force, timeout=session.timeout_s)
        if not no_wait:
            await client.hakeeper.wait_deleted(shard_id, timeout=session.timeout_s)

    session.run(work)
    show_fields(form, {"deleted": shard_id, "name": name})


for command in (
    shard_show.show,
    *shard_replicas.COMMANDS,
    shard_adoption.adopt,
    shard_branch.branch,
):
    shard.add_command(command)
