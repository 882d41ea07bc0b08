"""Plan: what is different between a declaration and a cluster, as data, in the order of `apply`.

Theory of operation. A plan is a list of changes, each about one thing: the settings, one log, the
quota of one identity, or its grants or denials over one scope. The order is safe to stop in.
Settings and quotas come first, because new logs and their callers follow them. Then logs are made,
then changed. What is denied is denied before anything is granted, and a denial is lifted after
grants have gone: nobody has a moment of rights that the file does not give. What takes the
administration of the cluster from somebody comes last of all: whoever applies may lose the right to
go on by it.

INV-DECLARED-1: a plan deletes no log. Without `prune` it revokes no role, lifts no denial, and
unsets no quota and no rate of the settings.

What cannot be done to a log that exists is `impossible`: then nothing is applied at all. What is
not in the file and stays is a note.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence

from logservice_wire.errors import InvalidArgument
from logservice_wire.roles import Role
from msgspec import UNSET, Struct, UnsetType, structs

from logservice.access import ALL, CLUSTER, EVERYTHING, denied_roles
from logservice.cli.declared.declaration import RATES, Declaration, Denial, Grant, Log, Quota
from logservice.cli.declared.present import Present, PresentLog, Roles

_NAMES_MAX = 10
"""Names in one note; the rest is counted."""


class Kind(enum.StrEnum):
    """What a change is about."""

    SETTINGS = "settings"
    LOG = "log"
    GRANT = "grant"
    DENIAL = "denial"
    QUOTA = "quota"


class Change(Struct, frozen=True, kw_only=True):
    """`fields`: old and new by key; of a log that is made, old is None. `shard`: the id of a log
    that exists, or that a new one shall have; 0 lets HAKeeper choose. `name`: of a log as it is
    now, or the identity of a rule or a quota.
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
        if self.kind is Kind.DENIAL:
            return f"denial for {self.name} over {self.scope}"
        if self.kind is Kind.QUOTA:
            return f"quota of {self.name or 'every identity'}"
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
    if prune and wanted.grants is UNSET:
        text = "--prune needs the grants in the file; `grants = []` takes all of them away"
        raise InvalidArgument(text, field="grants")
    granted, revoked = _rule_changes(Kind.GRANT, wanted.grants, present.grants, notes, prune=prune)
    denied, lifted = _rule_changes(Kind.DENIAL, wanted.denials, present.denials, notes, prune=prune)
    rules = [*denied, *granted, *revoked, *lifted]
    return Plan(
        changes=[
            *_settings_change(wanted, present, prune=prune),
            *_quota_changes(wanted.quotas, present, notes, prune=prune),
            *created,
            *changed,
            *sorted(rules, key=_takes_administration),
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


def _rule_changes(
    kind: Kind,
    wanted: Sequence[Grant | Denial] | UnsetType,
    now: Roles,
    notes: list[str],
    *,
    prune: bool,
) -> tuple[list[Change], list[Change]]:
    """What is added to the grants, or the denials, and what is taken away."""
    if wanted is UNSET:
        return [], []
    roles = {rule.key: denied_roles(rule.roles) for rule in wanted}
    added: list[Change] = []
    taken: list[Change] = []
    for key in [*roles, *sorted(now.keys() - roles.keys())]:
        before, after = now.get(key, ()), roles.get(key, ())
        both = denied_roles({*before, *after})
        if both != before:
            added.append(_rule(kind, key, before, both))
        if both != after:
            taken.append(_rule(kind, key, both, after))
    if taken and not prune:
        spared = [f"{change.name} over {change.scope}" for change in taken]
        notes.append(f"not in the file, and stays without --prune: {_listed(kind.value, spared)}")
        taken = []
    return added, taken


def _rule(kind: Kind, key: tuple[str, str], old: Sequence[str], new: Sequence[str]) -> Change:
    return Change(
        verb="add" if not old else "change" if new else "remove",
        kind=kind,
        name=key[0],
        scope=key[1],
        fields={"roles": (list(old), list(new))},
    )


def _takes_administration(change: Change) -> bool:
    """Whether the change takes the administration of the cluster from somebody."""
    before, after = (set(roles) & {Role.ADMIN, ALL} for roles in _roles(change))
    worse = before and not after if change.kind is Kind.GRANT else after and not before
    return change.scope in (CLUSTER, EVERYTHING) and bool(worse)


def _roles(change: Change) -> tuple[list[str], list[str]]:
    old, new = change.fields["roles"]
    assert isinstance(old, list)
    assert isinstance(new, list)
    return old, new


def _quota_changes(
    wanted: Sequence[Quota] | UnsetType, present: Present, notes: list[str], *, prune: bool
) -> Iterator[Change]:
    if wanted is UNSET:
        return
    given = {quota.identity: _quota_values(quota) for quota in wanted}
    spared: list[str] = []
    for identity in [*given, *sorted(present.quotas.keys() - given.keys())]:
        now, values = present.quotas.get(identity, {}), given.get(identity, {})
        unnamed = dict.fromkeys(now.keys() - values.keys())
        spared += [f"{name} of {identity or 'every identity'}" for name in unnamed]
        fields = {
            name: (now.get(name), value)
            for name, value in {**values, **(unnamed if prune else {})}.items()
            if now.get(name) != value
        }
        if fields:
            verb = "change" if now else "add"
            verb = verb if values else "remove"
            yield Change(verb=verb, kind=Kind.QUOTA, name=identity, fields=fields)
    if spared and not prune:
        notes.append(f"not in the file, and stays without --prune: {_listed('quota', spared)}")


def _quota_values(quota: Quota) -> dict[str, int | None]:
    return {
        name: value
        for name, value in structs.asdict(quota).items()
        if name != "identity" and value is not UNSET
    }


def _listed(what: str, names: list[str]) -> str:
    more = len(names) - _NAMES_MAX
    also = f" and {more} more" if more > 0 else ""
    return (
        f"{len(names)} {what}{'s' if len(names) > 1 else ''}: {', '.join(names[:_NAMES_MAX])}{also}"
    )
