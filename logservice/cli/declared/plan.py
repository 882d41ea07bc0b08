"""Plan: what is different between a declaration and a cluster, as data, in the order of `apply`.

Theory of operation. A plan is a list of changes, each about one thing: the settings, one log, or
the grants of one identity over one scope. The order is safe to stop in. Settings come first,
because new logs follow them. Then logs are made, then changed, then roles are granted. What takes
something from somebody comes last, and what takes the administration of the cluster away last of
all: whoever applies may lose the right to go on by it.

INV-DECLARED-1: a plan deletes no log. Without `prune` it takes no role from anybody, and no rate
from the settings.

What cannot be done to a log that exists is `impossible`: then nothing is applied at all. What is
not in the file and stays is a note.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping

from logservice_wire.errors import InvalidArgument
from logservice_wire.roles import Role
from msgspec import UNSET, Struct, structs

from logservice.access import CLUSTER, EVERYTHING
from logservice.cli.declared.declaration import RATES, Declaration, Log
from logservice.cli.declared.present import Present, PresentLog

_NAMES_MAX = 10
"""Names in one note; the rest is counted."""


class Kind(enum.StrEnum):
    """What a change is about."""

    SETTINGS = "settings"
    LOG = "log"
    GRANT = "grant"


class Change(Struct, frozen=True, kw_only=True):
    """`fields`: old and new by key; of a log that is made, old is None. `shard`: the id of a log
    that exists, or that a new one shall have; 0 lets HAKeeper choose. `name`: of a log as it is
    now, or the identity of a grant.
    """

    verb: str
    kind: Kind
    name: str = ""
    scope: str = ""
    shard: int = 0
    fields: Mapping[str, tuple[object, object]]

    @property
    def title(self) -> str:
        """What it is about, for people."""
        if self.kind is Kind.SETTINGS:
            return "the settings of the cluster"
        if self.kind is Kind.GRANT:
            return f"grant to {self.name} over {self.scope}"
        return f"log {self.name}" + (f" (shard {self.shard})" if self.shard else "")


class Plan(Struct, frozen=True, kw_only=True):
    """What `apply` would do. `impossible`: why it would do nothing at all."""

    changes: list[Change]
    impossible: list[str]
    notes: list[str]


def plan(wanted: Declaration, present: Present, *, prune: bool) -> Plan:
    """The difference. Raises InvalidArgument when the file is of another cluster, or names no
    grants that `prune` could spare.
    """
    if wanted.cluster_id and wanted.cluster_id != present.cluster_id:
        text = f"the file is about {wanted.cluster_id!r}, this cluster is {present.cluster_id!r}"
        raise InvalidArgument(text, field="cluster_id")
    impossible: list[str] = []
    notes: list[str] = []
    created: list[Change] = []
    changed: list[Change] = []
    for name, log in wanted.logs.items():
        found = _found(name, log, present, impossible)
        if found is None and not any(text.startswith(f"logs.{name}:") for text in impossible):
            created.append(_creation(name, log))
        elif found is not None:
            changed += _log_change(name, log, found, impossible, notes)
    notes += _placing(created + changed, present)
    notes += _other_logs(wanted, present)
    granted, taken = _grant_changes(wanted, present, prune=prune, notes=notes)
    return Plan(
        changes=[
            *_settings_change(wanted, present, prune=prune),
            *created,
            *changed,
            *granted,
            *sorted(taken, key=_takes_administration),
        ],
        impossible=impossible,
        notes=notes,
    )


def log_values(log: Log) -> dict[str, object]:
    """What a file says of a log, without what only finds or makes it."""
    return {
        name: value
        for name, value in structs.asdict(log).items()
        if value is not UNSET and name not in ("id", "waive_g1")
    }


def different(
    values: Mapping[str, object], now: Mapping[str, object]
) -> dict[str, tuple[object, object]]:
    """Old and new of each key that is not as wanted."""
    return {name: (now[name], value) for name, value in values.items() if now[name] != value}


def _settings_change(wanted: Declaration, present: Present, *, prune: bool) -> Iterator[Change]:
    if wanted.settings is UNSET:
        return
    given = {
        name: value for name, value in structs.asdict(wanted.settings).items() if value is not UNSET
    }
    if prune:
        given = {**dict.fromkeys(RATES, 0), **given}
    fields = different(given, present.settings)
    if fields:
        yield Change(verb="change", kind=Kind.SETTINGS, fields=fields)


def _found(name: str, log: Log, present: Present, impossible: list[str]) -> PresentLog | None:
    """The log that is meant, if it is there."""
    by_name = present.named(name)
    if log.id is UNSET:
        return by_name
    by_id = present.logs.get(log.id)
    if by_name is not None and by_name is not by_id:
        impossible.append(f"logs.{name}: the log of that name has the id {by_name.id}")
        return None
    return by_id


def _creation(name: str, log: Log) -> Change:
    fields = {key: (None, value) for key, value in log_values(log).items()}
    shard = 0 if log.id is UNSET else log.id
    return Change(verb="add", kind=Kind.LOG, name=name, shard=shard, fields=fields)


def _log_change(
    name: str, log: Log, found: PresentLog, impossible: list[str], notes: list[str]
) -> Iterator[Change]:
    fields = different(log_values(log), found.values)
    if found.name != name:
        fields = {"name": (found.name, name), **fields}
    if found.state == "closed":
        notes.append(f"log {name} is closed: nothing is appended to it any more")
    if "witnesses" in fields:
        old, new = fields["witnesses"]
        text = f"a log keeps its number of witnesses, {old}; it cannot have {new}"
        impossible.append(f"logs.{name}: {text}")
    elif "replicas" in fields and found.values["witnesses"]:
        impossible.append(f"logs.{name}: a log with witnesses keeps its number of replicas")
    elif fields:
        yield Change(verb="change", kind=Kind.LOG, name=found.name, shard=found.id, fields=fields)


def _placing(changes: list[Change], present: Present) -> Iterator[str]:
    for change in changes:
        replicas = change.fields.get("replicas", (0, 0))[1]
        if isinstance(replicas, int) and replicas > present.stores:
            yield (
                f"log {change.name} shall have {replicas} replicas, and {present.stores} stores"
                " are alive"
            )


def _other_logs(wanted: Declaration, present: Present) -> Iterator[str]:
    ids = {log.id for log in wanted.logs.values() if log.id is not UNSET}
    names = sorted(
        log.name
        for log in present.logs.values()
        if log.name not in wanted.logs and log.id not in ids
    )
    if names:
        yield f"not in the file, and stays: {_listed('log', names)}"


def _grant_changes(
    wanted: Declaration, present: Present, *, prune: bool, notes: list[str]
) -> tuple[list[Change], list[Change]]:
    if wanted.grants is UNSET:
        if prune:
            text = "--prune needs the grants in the file; `grants = []` takes all of them away"
            raise InvalidArgument(text, field="grants")
        return [], []
    assert present.grants is not None  # asked for where the file has grants
    roles = {grant.key: {str(role) for role in grant.roles} for grant in wanted.grants}
    granted: list[Change] = []
    taken: list[Change] = []
    for key in [*roles, *sorted(present.grants.keys() - roles.keys())]:
        now = set(present.grants.get(key, ()))
        both = now | roles.get(key, set())
        if both != now:
            granted.append(_grant(key, now, both))
        if both != roles.get(key, set()):
            taken.append(_grant(key, both, roles.get(key, set())))
    if taken and not prune:
        spared = [f"{change.name} over {change.scope}" for change in taken]
        notes.append(f"not in the file, and stays without --prune: {_listed('grant', spared)}")
        taken = []
    return granted, taken


def _grant(key: tuple[str, str], old: set[str], new: set[str]) -> Change:
    verb = "add" if not old else "change" if new else "remove"
    return Change(
        verb=verb,
        kind=Kind.GRANT,
        name=key[0],
        scope=key[1],
        fields={"roles": (sorted(old), sorted(new))},
    )


def _takes_administration(change: Change) -> bool:
    old, new = change.fields["roles"]
    assert isinstance(old, list)
    assert isinstance(new, list)
    return change.scope in (CLUSTER, EVERYTHING) and Role.ADMIN in old and Role.ADMIN not in new


def _listed(what: str, names: list[str]) -> str:
    more = len(names) - _NAMES_MAX
    also = f" and {more} more" if more > 0 else ""
    return (
        f"{len(names)} {what}{'s' if len(names) > 1 else ''}: {', '.join(names[:_NAMES_MAX])}{also}"
    )
