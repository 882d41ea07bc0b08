"""`logctl shard`: the life of one log, from its creation to its deletion."""

from __future__ import annotations

import math
from collections.abc import Mapping

import click
from logservice_client import LogClient
from logservice_wire.errors import LogServiceError
from logservice_wire.rpcs import GET_STORE_STATUS
from logservice_wire.v1 import admin_pb2, hakeeper_pb2

from logservice import bounds
from logservice.cli.ctl import shard_adoption, shard_branch, shard_replicas
from logservice.cli.ctl.client_session import Session, pass_session
from logservice.cli.ctl.completed_names import logs
from logservice.cli.ctl.direct_call import call_store
from logservice.cli.ctl.shard_argument import shard_argument
from logservice.cli.shell.duration import duration
from logservice.cli.shell.output import output_option, say, show_fields, show_rows

_shard = shard_argument("shard_id")
_NUMBER = click.IntRange(0, 2**62)
"""What HAKeeper takes for a number (`hakeeper.commands.wire_types`)."""
_STATES = ("creating", "open", "closed", "deleting")
_BEHIND = ("behind_entries", "behind_bytes", "behind_to_go_s")


def _labels(
    context: click.Context, option: click.Parameter, given: tuple[str, ...]
) -> dict[str, str]:
    """``key=value`` words."""
    found: dict[str, str] = {}
    for word in given:
        key, separator, value = word.partition("=")
        if not separator or not key:
            raise click.BadParameter(f"expected key=value, not {word!r}", context, option)
        found[key] = value
    return found


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
            help="Share of a disk that more logs want than it takes; usual: 100.",
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
    """Create, find, change, move, close or delete one log."""


@shard.command()
@click.option("--id", "shard_id", type=click.IntRange(min=1), help="Default: the next free one.")
@click.option("--name", default="", callback=_name, help="Default: shard-<id>.")
@click.option("--replicas", type=click.IntRange(1, 9), help="Default: the cluster's.")
@_policy_options
@click.option("--label", "labels", multiple=True, callback=_labels, help="key=value; repeatable.")
@click.option(
    "--request-id", default="", help="Say the same one again after an unknown outcome: one log."
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
    """Create a log; print its id once it accepts appends."""
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


@shard.command("list")
@click.option("--state", "states", multiple=True, type=click.Choice(_STATES), help="Only these.")
@click.option(
    "--label", "labels", multiple=True, callback=_labels, help="Only with key=value, or key= any."
)
@click.option("--prefix", default="", help="Only names that begin so.")
@output_option
@pass_session
def list_shards(
    session: Session, states: tuple[str, ...], labels: dict[str, str], prefix: str, form: str
) -> None:
    """Print the logs by id, and where they are in their lives."""
    found = session.run(
        lambda client: client.hakeeper.list_shards(
            states=states, labels=labels, name_prefix=prefix, timeout=session.timeout_s
        )
    )
    rows = [
        {
            "shard": one.shard_id,
            "name": one.name,
            "state": one.state,
            "replicas": len(one.replicas),
            "wanted": one.wanted_replicas,
            "leader": one.leader_store or None,
            "protected": one.policy.protected,
            "labels": dict(one.labels),
        }
        for one in found
    ]
    show_rows(form, rows, "logs")


@shard.command()
@_shard
@output_option
@pass_session
def show(session: Session, shard_id: int, form: str) -> None:
    """Show what is wanted of SHARD, and what is.

    "Behind" is what each store has not written yet that the leader has, and how many seconds that
    takes as it goes now; the leader's store says it.

    While HAKeeper is silent a store says what it knows: name, state and replicas. Standard error
    says so, and how old that is.
    """

    async def work(client: LogClient) -> tuple[hakeeper_pb2.ShardInfo, bool]:
        each_s = session.timeout_s / 2
        try:
            return await client.hakeeper.shard_info(shard_id, fresh=True, timeout=each_s), True
        except LogServiceError as error:
            if not error.retryable:
                raise
            return await client.hakeeper.shard_info(shard_id, timeout=each_s), False

    found, fresh = session.run(work)
    if not fresh:
        age_s = found.directory_age_ms / 1000
        known = (
            f"as a store knew it {age_s:.0f} s ago" if found.directory_index else "it may be old"
        )
        say(f"HAKeeper does not answer; {known}", err=True)
    described = {**_described(found), **_behind(session, found)}
    if found.directory_index:
        described = {name: described[name] for name in _IN_A_COPY}
    show_fields(form, described)


@shard.command()
@click.argument("name", shell_complete=logs)
@output_option
@pass_session
def resolve(session: Session, name: str, form: str) -> None:
    """Print the id of the living log called NAME."""
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
@click.option("--label", "labels", multiple=True, callback=_labels, help="Set key=value.")
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

    Refused with STALE_EPOCH when somebody else changed the log at the same time.
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
@click.option("--name", required=True, help="The log's name, so that nobody deletes another one.")
@click.option("--force", is_flag=True, help="Also when it has holds, or is broken.")
@click.option("--no-wait", is_flag=True, help="Do not wait until every live store removed it.")
@output_option
@pass_session
def delete(
    session: Session, shard_id: int, name: str, force: bool, no_wait: bool, form: str
) -> None:
    """Delete SHARD for ever: its records, replicas and id.

    It is closed first. A log that has holds is deleted only by force, one that is protected not
    even then: first `logctl shard set SHARD --no-protect`. A store that is away removes its replica
    when it comes back.
    """

    async def work(client: LogClient) -> None:
        await client.hakeeper.delete_shard(shard_id, name, force=force, timeout=session.timeout_s)
        if not no_wait:
            await client.hakeeper.wait_deleted(shard_id, timeout=session.timeout_s)

    session.run(work)
    show_fields(form, {"deleted": shard_id, "name": name})


_IN_A_COPY = ("shard", "name", "state", "wanted_replicas", "replicas")
"""What a store's copy of the directory has of a log."""


def _behind(session: Session, found: hakeeper_pb2.ShardInfo) -> dict[str, object]:
    """How far each replica is behind the leader, as the leader's store says; None: it cannot."""
    if found.directory_index or not found.leader_address:
        return dict.fromkeys(_BEHIND)
    request = admin_pb2.GetStoreStatusRequest(only_shard=found.shard_id)
    try:
        status = call_store(
            found.leader_address, GET_STORE_STATUS, request, session.timeout_s / 2, session.tls
        )
    except LogServiceError:
        return dict.fromkeys(_BEHIND)
    late = [one for each in status.replicas for one in each.followers if one.lag_entries]
    entries = {one.store_id: one.lag_entries for one in late}
    size = {one.store_id: one.lag_bytes for one in late}
    to_go = {one.store_id: round(one.to_go_s, 1) if one.to_go_s >= 0 else None for one in late}
    return dict(zip(_BEHIND, (entries, size, to_go), strict=True))


def _described(found: hakeeper_pb2.ShardInfo) -> dict[str, object]:
    pinned_s = found.leader_wish_ticks / bounds.HAKEEPER_TICKS_PER_S
    return {
        "shard": found.shard_id,
        "name": found.name,
        "state": found.state,
        "wanted_replicas": found.wanted_replicas,
        "witnesses": found.witnesses or None,
        "replicas": [
            f"{one.store_id} ({one.role}{', leader' if one.leader else ''})"
            for one in found.replicas
        ],
        "zone_rule": found.policy.zone_rule,
        "leader_zone": found.policy.leader_zone or None,
        "leader_pinned_to": (found.leader_wish_store or "where it is") if pinned_s else None,
        "leader_pinned_for_s": pinned_s or None,
        "leader_pin_reason": found.leader_wish_reason or None,
        "protected": found.policy.protected,
        "learners": dict(sorted(found.policy.learners.items())),
        "max_bytes_per_s": found.policy.max_bytes_per_s or None,
        "max_records_per_s": found.policy.max_records_per_s or None,
        "weight": found.policy.weight,
        "retention_age_s": found.policy.retention_age_s or None,
        "retention_bytes": found.policy.retention_bytes or None,
        "retention_records": found.policy.retention_records or None,
        "labels": dict(found.labels),
        "holds": found.holds,
        "end_lsn": found.end_lsn or None,
        "closed_index": found.closed_index or None,
        "held_by": list(found.held_by),
        "revision": found.revision,
    }


for command in (*shard_replicas.COMMANDS, shard_adoption.adopt, shard_branch.branch):
    shard.add_command(command)
