"""cluster_document: what an archive knows of the cluster besides the records of its logs.

Theory of operation. Names, policies, labels and states of the living logs, the settings, and the
access list, if the archiver may read it, are one document, with the numbers that were given out and
may not be given out again. It is written when it says something
else than the newest one, under the next number and by put-if-absent: of two archivers that see the
same change, one writes it. A document says what was so at one time; ranges that are archived later
may be newer. The newest CLUSTER_DOCUMENTS_MAX are kept.

A document is hostile input, as a manifest is. Who may write the archive's folder may write what he
likes into the access list of a document, so nothing of it is restored but by an explicit word.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from logservice_client import LogClient
from logservice_wire.archive_name import FileRefused
from logservice_wire.errors import InvalidArgument, PermissionDenied
from logservice_wire.v1 import hakeeper_pb2

from logservice import bounds
from logservice.archive.damage import ArchiveDamaged
from logservice.archive.folder import Files
from logservice.same_names import copied

FORMAT: Final = 1
_STEPS: Final = {
    "next_replica_id": bounds.RECOVERED_REPLICA_STEP,
    "next_id": bounds.RECOVERED_ID_STEP,
}
_FOLDER: Final = "cluster"
_NAME: Final = re.compile(r"(\d{20})\.json")


class LogEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A living log. end_lsn: of a closed one; 0 while it is open."""

    shard_id: int
    name: str
    replicas: int
    state: str
    end_lsn: int = 0
    labels: dict[str, str] = {}
    zone_rule: str = ""
    leader_zone: str = ""
    protected: bool = False
    learners: dict[str, int] = {}
    max_bytes_per_s: int = 0
    max_records_per_s: int = 0
    weight: int = 0
    witnesses: int = 0
    retention_age_s: int = 0
    retention_bytes: int = 0
    retention_records: int = 0

    @property
    def retention(self) -> bool:
        """Whether the policy lets records go."""
        return bool(self.retention_age_s or self.retention_bytes or self.retention_records)

    def policy(self) -> hakeeper_pb2.ShardPolicy:
        """As CreateShard and ChangeShard take it, without the retention: it judges by append times,
        so a log that is restored after a while would lose what was just brought back.
        """
        return hakeeper_pb2.ShardPolicy(
            zone_rule=self.zone_rule,
            leader_zone=self.leader_zone,
            protected=self.protected,
            learners=self.learners,
            max_bytes_per_s=self.max_bytes_per_s,
            max_records_per_s=self.max_records_per_s,
            weight=self.weight,
        )


class Grant(msgspec.Struct, frozen=True):
    """A row of the access list: a grant, or a denial."""

    identity: str
    scope: str
    roles: tuple[str, ...]


class Quota(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an identity, or with an empty one every identity, may use of each store."""

    identity: str = ""
    requests_per_s: int | None = None
    bytes_per_s: int | None = None
    rpcs_max: int | None = None
    streams_max: int | None = None
    connections_max: int | None = None
    address_connections_max: int | None = None

    def values(self) -> dict[str, int]:
        """What is set, by name."""
        found = msgspec.structs.asdict(self)
        del found["identity"]
        return {name: value for name, value in found.items() if value is not None}


class Numbers(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the cluster has given out (`GivenOut`): every number below these may be in use.

    Each is the next multiple of the step that a restore goes on above it, so that a document is
    news once in so many numbers, and not whenever somebody allocates an id.
    """

    next_shard_id: int = 0
    next_replica_id: int = 0
    next_operator_id: int = 0
    next_command_id: int = 0
    next_wish_id: int = 0
    next_tn_shard: int = 0
    next_id: int = 0
    access_version: int = 0
    limits_version: int = 0
    quotas_version: int = 0
    revision: int = 0
    deleted: tuple[tuple[int, int], ...] = ()

    def given_out(self) -> hakeeper_pb2.GivenOut:
        """As SkipNumbers takes it. Raises InvalidArgument for what are no numbers."""
        try:
            return copied(
                hakeeper_pb2.GivenOut,
                self,
                deleted=[hakeeper_pb2.IdRange(first=a, last=b) for a, b in self.deleted],
            )
        except ValueError as error:
            why = f"the numbers of the archive: {error}"
            raise InvalidArgument(why, field="given_out") from error

    def names(self, shard_id: int) -> bool:
        """Whether a log may have had that id."""
        deleted = any(first <= shard_id <= last for first, last in self.deleted)
        return deleted or shard_id < self.next_shard_id


class Document(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """grants: None when the archiver may not read them, nor the denials and quotas. numbers: None
    of a cluster at version 1, or an older archiver.
    """

    format: int
    cluster_id: str
    written_us: int
    logs: tuple[LogEntry, ...]
    default_replicas: int = 0
    store_timeout_ms: int = 0
    joining: str = ""
    replica_balance: str = ""
    leader_balance: str = ""
    replace_stuck: str = ""
    catch_up_bytes_per_s: int = 0
    tail_read_bytes_per_s: int = 0
    catch_up_read_bytes_per_s: int = 0
    grants: tuple[Grant, ...] | None = None
    denials: tuple[Grant, ...] = ()
    quotas: tuple[Quota, ...] = ()
    numbers: Numbers | None = None


async def describe(
    client: LogClient, infos: Iterable[hakeeper_pb2.ShardInfo], *, grants: bool
) -> Document:
    """What there is now. `grants`: ask for the access list. Raises what the questions raise."""
    state = await client.hakeeper.cluster_state()
    settings = state.settings
    listed = await _access_list(client) if grants else None
    return Document(
        format=FORMAT,
        cluster_id=state.cluster_id,
        written_us=time.time_ns() // 1000,
        logs=tuple(_entry(one) for one in infos),
        default_replicas=settings.default_replicas,
        store_timeout_ms=settings.store_timeout_ms,
        joining=settings.joining,
        replica_balance=settings.replica_balance,
        leader_balance=settings.leader_balance,
        replace_stuck=settings.replace_stuck,
        catch_up_bytes_per_s=settings.catch_up_bytes_per_s,
        tail_read_bytes_per_s=settings.tail_read_bytes_per_s,
        catch_up_read_bytes_per_s=settings.catch_up_read_bytes_per_s,
        grants=_rules(listed.grants) if listed is not None else None,
        denials=_rules(listed.denials) if listed is not None else (),
        quotas=tuple(_quota(one) for one in listed.quotas) if listed is not None else (),
        numbers=await _numbers_of(client) if state.cluster_version >= 2 else None,
    )


async def _access_list(client: LogClient) -> hakeeper_pb2.AccessList | None:
    try:
        return await client.hakeeper.access_list()
    except PermissionDenied:
        return None


def _quota(said: hakeeper_pb2.IdentityQuota) -> Quota:
    return Quota(**{field.name: value for field, value in said.ListFields()})


async def _numbers_of(client: LogClient) -> Numbers:
    """What was given out, rounded up."""
    given = await client.hakeeper.given_out()
    rounded = {
        name: (getattr(given, name) // step + 1) * step
        for name in Numbers.__struct_fields__
        if name != "deleted"
        for step in [_STEPS.get(name, bounds.RECOVERED_NUMBER_STEP)]
    }
    return Numbers(**rounded, deleted=tuple((one.first, one.last) for one in given.deleted))


def _rules(rules: Iterable[hakeeper_pb2.AccessGrant]) -> tuple[Grant, ...]:
    return tuple(Grant(one.identity, one.scope, tuple(one.roles)) for one in rules)


def _entry(info: hakeeper_pb2.ShardInfo) -> LogEntry:
    policy = info.policy
    return LogEntry(
        shard_id=info.shard_id,
        name=info.name,
        replicas=info.wanted_replicas,
        state=info.state,
        end_lsn=info.end_lsn,
        labels=dict(sorted(info.labels.items())),
        zone_rule=policy.zone_rule,
        leader_zone=policy.leader_zone,
        protected=policy.protected,
        learners=dict(sorted(policy.learners.items())),
        max_bytes_per_s=policy.max_bytes_per_s,
        max_records_per_s=policy.max_records_per_s,
        weight=policy.weight,
        witnesses=info.witnesses,
        retention_age_s=policy.retention_age_s,
        retention_bytes=policy.retention_bytes,
        retention_records=policy.retention_records,
    )


def write(files: Files, document: Document) -> bool:
    """Write it, if it is news; returns whether it did."""
    numbers = _numbers(files)
    if numbers and _said(newest(files)) == _said(document):
        return False
    number = numbers[-1] + 1 if numbers else 1
    content = msgspec.json.format(msgspec.json.encode(document), indent=1)
    if not files.put_if_absent(_path(number), content):
        return False
    for old in numbers[: 1 - bounds.CLUSTER_DOCUMENTS_MAX]:
        files.remove(_path(old))
    return True


def newest(files: Files) -> Document | None:
    """The newest document; None when there is none. Raises ArchiveDamaged, InvalidArgument."""
    numbers = _numbers(files)
    if not numbers:
        return None
    path = _path(numbers[-1])
    try:
        content = files.read(path, bounds.CLUSTER_DOCUMENT_BYTES_MAX)
    except FileRefused as error:
        raise ArchiveDamaged(detail=str(error)) from error
    try:
        found = msgspec.json.decode(content, type=Document)
    except msgspec.DecodeError as error:
        raise ArchiveDamaged(detail=f"{path}: {error}") from error
    if found.format != FORMAT:
        raise InvalidArgument(
            f"{path} has format {found.format}, this program reads {FORMAT}", field="format"
        )
    ids = [one.shard_id for one in found.logs]
    if len(set(ids)) != len(ids) or any(one < 1 for one in ids):
        raise ArchiveDamaged(detail=f"{path} names a log twice, or one that is none")
    return found


def _said(document: Document | None) -> Any:
    return document and msgspec.structs.replace(document, written_us=0)


def _numbers(files: Files) -> list[int]:
    names = files.names(_FOLDER)
    return sorted(int(found[1]) for name in names if (found := _NAME.fullmatch(name)))


def _path(number: int) -> str:
    return f"{_FOLDER}/{number:020d}.json"
