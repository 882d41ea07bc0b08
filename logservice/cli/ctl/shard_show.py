"""`logctl shard show`: what is known of one shard, and by whom.

Theory of operation. HAKeeper knows what is wanted of a shard and where its replicas are; the
shard's leader knows where the log stands, who writes, and what holds the records. Both are asked at
once, each for its share of the time. While one is silent the other's part is shown, the fields of
the silent one are null, and the exit code is UNAVAILABLE. In HAKeeper's place a store's copy of the
directory answers, which has few of the fields. A shard that is being deleted has no leader any
more, so nothing is missing then.

How far the replicas are behind is asked last, of the leader's store, in the rest of the time. It
needs a right over the cluster, so it stays unknown for those who may look at the shard alone.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

import click
from logservice_client import LogClient
from logservice_wire.errors import LogServiceError
from logservice_wire.rpcs import GET_STORE_STATUS
from logservice_wire.v1 import admin_pb2, hakeeper_pb2, log_pb2

from logservice import bounds
from logservice.cli.ctl.client_session import Session, pass_session
from logservice.cli.ctl.direct_call import call_store
from logservice.cli.ctl.shard_argument import shard_argument
from logservice.cli.ctl.without_hakeeper import is_silence
from logservice.cli.shell import exit_codes
from logservice.cli.shell.output import output_option, show_fields
from logservice.safe_text import safe_text

_HAKEEPER_SHARE: Final = 0.4
_COPY_SHARE: Final = 0.2
_LEADER_SHARE: Final = _HAKEEPER_SHARE + _COPY_SHARE
"""Shares of the time-out: HAKeeper and, if it is silent, a store's copy; beside them the leader.
What is left then is for how far the replicas are behind."""

_TOP: Final = (
    "shard",
    "name",
    "state",
    "leader_store",
    "first_lsn",
    "applied_lsn",
    "truncated_lsn",
    "requested_truncation_lsn",
    "writer_holder",
    "writer_epoch",
    "holds",
    "replicas",
)
"""What people look for."""

_IN_A_COPY: Final = ("name", "state", "wanted_replicas", "replicas")
"""What a store's copy of the directory has of a shard."""

_BEHIND: Final = ("behind_entries", "behind_bytes", "behind_to_go_s")


@click.command()
@shard_argument("shard")
@click.option("--stale", is_flag=True, help="Positions as one replica has applied them.")
@output_option
@pass_session
def show(session: Session, shard: int, stale: bool, form: str) -> int:
    """Show what is wanted of SHARD, and what is.

    Its leader says positions, writer, holds and the limits in force; HAKeeper says the rest.
    `reported holds` is how many holds HAKeeper knows of, which is what it judges by.

    "Behind" is what each store has not written yet that the leader has, and how many seconds that
    takes as it goes now; the leader's store says it.

    While HAKeeper is silent a store says what it knows: name, state and replicas. Standard error
    says so, and how old that is. A table leaves out what is unknown or does not apply; JSON and
    `-o wide` have it.

    Exit code 4 when HAKeeper or the leader does not answer: what only it knows is missing then.
    """
    timeout_s = session.timeout_s
    known, told = session.run(lambda client: _asked(client, shard, timeout_s, stale=stale))
    if isinstance(known, LogServiceError) and isinstance(told, LogServiceError):
        raise known
    fields = {
        "shard": shard,
        **_of_hakeeper(known),
        **_of_leader(told),
        **_behind(session, known),
    }
    if form == "table":
        fields = {name: value for name, value in fields.items() if value is not None}
    code = _tell_missing(form, known, told, stale=stale)
    show_fields(form, {**{name: fields[name] for name in _TOP if name in fields}, **fields})
    return code


@dataclass(frozen=True, slots=True)
class _Copy:
    """What a store knew of a shard, in HAKeeper's place."""

    info: hakeeper_pb2.ShardInfo
    silence: LogServiceError

    def worth(self) -> str:
        """How old it is, in words."""
        if not self.info.directory_index:
            return "it may be old"
        return f"as a store knew it {self.info.directory_age_ms / 1000:.0f} s ago"


_Known = hakeeper_pb2.ShardInfo | _Copy | LogServiceError
"""What HAKeeper says, what is known in its place, or why nothing is."""

_Told = log_pb2.GetShardStatusResponse | LogServiceError | None
"""What the leader says, why it does not, or None of a shard that has no leader any more."""


async def _asked(
    client: LogClient, shard: int, timeout_s: float, *, stale: bool
) -> tuple[_Known, _Told]:
    """Raises what is no silence of HAKeeper: there is no such shard, say."""
    telling = asyncio.ensure_future(_leaders(client, shard, timeout_s * _LEADER_SHARE, stale=stale))
    try:
        known = await _hakeepers(client, shard, timeout_s)
        if isinstance(known, hakeeper_pb2.ShardInfo) and known.state == "deleting":
            return known, None
        return known, await telling
    finally:
        telling.cancel()


async def _hakeepers(client: LogClient, shard: int, timeout_s: float) -> _Known:
    keeper = client.hakeeper
    try:
        return await keeper.shard_info(shard, fresh=True, timeout=timeout_s * _HAKEEPER_SHARE)
    except LogServiceError as error:
        if not is_silence(error):
            raise
        silence = error
    try:
        return _Copy(await keeper.shard_info(shard, timeout=timeout_s * _COPY_SHARE), silence)
    except LogServiceError as error:
        if not is_silence(error):
            raise
        return silence


async def _leaders(client: LogClient, shard: int, timeout_s: float, *, stale: bool) -> _Told:
    try:
        return await client.shard(shard).status(stale=stale, timeout=timeout_s)
    except LogServiceError as error:
        return error


def _tell_missing(form: str, known: _Known, told: _Told, *, stale: bool) -> int:
    """Say on stderr which part is missing; the exit code."""
    code = exit_codes.OK
    if isinstance(known, LogServiceError):
        text = f"HAKeeper does not answer ({known.reason.value}), and no store has a copy"
        exit_codes.tell_error(form, known, text)
        code = exit_codes.UNAVAILABLE
    elif isinstance(known, _Copy):
        exit_codes.tell_error(form, known.silence, f"HAKeeper does not answer; {known.worth()}")
        code = exit_codes.UNAVAILABLE
    if isinstance(told, LogServiceError):
        whose = "no replica says its part" if stale else "the leader does not say its part"
        exit_codes.tell_error(form, told, f"{whose}: {safe_text(told.message)}")
        code = exit_codes.UNAVAILABLE
    return code


def _of_hakeeper(known: _Known) -> dict[str, object]:
    if isinstance(known, LogServiceError):
        return dict.fromkeys(_described(hakeeper_pb2.ShardInfo()))
    if isinstance(known, _Copy):
        found = _described(known.info)
        if known.info.directory_index:
            found = {name: found[name] if name in _IN_A_COPY else None for name in found}
        return found
    return _described(known)


def _described(found: hakeeper_pb2.ShardInfo) -> dict[str, object]:
    pinned_s = found.leader_wish_ticks / bounds.HAKEEPER_TICKS_PER_S
    return {
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
        "reported_holds": found.holds,
        "end_lsn": found.end_lsn or None,
        "closed_index": found.closed_index or None,
        "held_by": list(found.held_by),
        "revision": found.revision,
    }


def _of_leader(told: _Told) -> dict[str, object]:
    if isinstance(told, log_pb2.GetShardStatusResponse):
        return _standing(told)
    return dict.fromkeys(_standing(log_pb2.GetShardStatusResponse()))


def _standing(found: log_pb2.GetShardStatusResponse) -> dict[str, object]:
    """The limits have names of their own: those in force may not be those that are wanted yet."""
    return {
        "first_lsn": found.position.first_lsn,
        "applied_lsn": found.position.applied_lsn,
        "truncated_lsn": found.truncated_lsn,
        "requested_truncation_lsn": found.requested_truncation_lsn,
        "leader_store": found.position.leader_store,
        "leader_address": found.position.leader_address,
        "term": found.term,
        "committed_index": found.committed_index,
        "applied_index": found.applied_index,
        "writer_holder": found.writer_holder,
        "writer_owner": found.writer_owner,
        "writer_epoch": found.writer_epoch,
        "holds": {item.name: item.lsn for item in found.holds},
        "hold_owners": {item.name: item.owner for item in found.holds},
        "sessions": found.sessions,
        "next_timestamp": found.next_timestamp,
        "answered_by": found.store_id,
        "enforced_max_bytes_per_s": found.max_bytes_per_s or None,
        "enforced_max_records_per_s": found.max_records_per_s or None,
        "appends_delayed": found.appends_delayed,
        "restoring": _restoring(found),
        **_lineage(found.position.lineage),
    }


def _lineage(known: log_pb2.Lineage) -> dict[str, object]:
    """Which history of the log that is: of two that were forked from one, only the ids differ."""
    if not known.number:
        return {"lineage": 0, "lineage_id": None, "fork_lsn": None}
    return {"lineage": known.number, "lineage_id": known.id.hex(), "fork_lsn": known.fork_lsn}


def _restoring(found: log_pb2.GetShardStatusResponse) -> str | None:
    """How far a log is that is not open yet."""
    if not found.HasField("restoring"):
        return None
    if found.restoring.mirror:
        return f"mirror, LSNs {found.restoring.base_lsn} to {found.restoring.next_lsn - 1}"
    return f"up to LSN {found.restoring.next_lsn - 1} of {found.restoring.end_lsn - 1}"


def _behind(session: Session, found: _Known) -> dict[str, object]:
    """How far each replica is behind the leader, as the leader's store says; None: it cannot."""
    if not isinstance(found, hakeeper_pb2.ShardInfo) or not found.leader_address:
        return dict.fromkeys(_BEHIND)
    request = admin_pb2.GetStoreStatusRequest(only_shard=found.shard_id)
    limit_s = session.timeout_s
    try:
        status = call_store(found.leader_address, GET_STORE_STATUS, request, limit_s, session.tls)
    except LogServiceError:
        return dict.fromkeys(_BEHIND)
    late = [one for each in status.replicas for one in each.followers if one.lag_entries]
    entries = {one.store_id: one.lag_entries for one in late}
    size = {one.store_id: one.lag_bytes for one in late}
    to_go = {one.store_id: round(one.to_go_s, 1) if one.to_go_s >= 0 else None for one in late}
    return dict(zip(_BEHIND, (entries, size, to_go), strict=True))
