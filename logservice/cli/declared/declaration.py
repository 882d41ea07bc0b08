"""Declaration: the file that says what a cluster shall be, and nothing of how it becomes so.

Theory of operation. The file is TOML with strict keys: what is misspelt is refused with its path.
What it does not name stays as it is. Each part can be left out as a whole: ``[cluster]``, the
settings; ``[logs.NAME]``, one table for each log; ``[[grants]]`` and ``[[denials]]``, the access
list; ``[[quotas]]``. A log is its name. With an `id` it is that id, and the name is what it shall
be called.

An empty value is a value: ``labels = {}`` takes all labels away, ``learners = {}`` all learners. A
map is always the whole map. Roles are different, because taking one away locks somebody out: those
that are named are granted, and only `--prune` takes away what is not named.

This file alone decides the keys. What a value may be is mostly decided by HAKeeper, which refuses
it; here stand the types, and what would be nonsense whatever the cluster is.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from typing import Annotated, Final, Literal

import msgspec
from logservice_wire.errors import InvalidArgument, TooLarge
from logservice_wire.roles import Role
from msgspec import UNSET, Meta, UnsetType

from logservice import bounds
from logservice.access import check_denied, check_grantee, denied_roles
from logservice.config import ConfigError, converted
from logservice.ids import HAKEEPER_NAME
from logservice.safe_text import SAFE_PATTERN

_ROUNDING: Final = 1e-9
"""Of a decimal fraction, in parts of it."""

Natural = Annotated[int, Meta(ge=0, le=2**62)]
Positive = Annotated[int, Meta(ge=1, le=2**62)]
Text = Annotated[str, Meta(max_length=bounds.NAME_BYTES_MAX, pattern=SAFE_PATTERN)]
Rate = Annotated[int, Meta(ge=0, le=bounds.CATCH_UP_BYTES_PER_S_MAX)]
Balance = Literal["on", "manual", "off"]


class _Table(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True
):
    """Base of all tables, which are immutable and refuse unknown keys. UNSET: it is not named."""


class Settings(_Table, frozen=True, kw_only=True):
    """[cluster]: `logctl cluster settings`. A rate of 0 is what the stores are configured to."""

    store_timeout_s: Annotated[float, Meta(gt=0)] | UnsetType = UNSET
    default_replicas: Annotated[int, Meta(ge=1, le=9)] | UnsetType = UNSET
    joining: Literal["automatic", "by-verb"] | UnsetType = UNSET
    replica_balance: Balance | UnsetType = UNSET
    leader_balance: Balance | UnsetType = UNSET
    replace_stuck: Literal["on", "off"] | UnsetType = UNSET
    catch_up_bytes_per_s: Rate | UnsetType = UNSET
    tail_read_bytes_per_s: Rate | UnsetType = UNSET
    catch_up_read_bytes_per_s: Rate | UnsetType = UNSET


RATES: Final = ("catch_up_bytes_per_s", "tail_read_bytes_per_s", "catch_up_read_bytes_per_s")
"""The settings that can be absent, so that `--prune` can take them away."""


class Log(_Table, frozen=True, kw_only=True):
    """[logs.NAME]: what `logctl shard create` and `logctl shard set` say of a log."""

    id: Positive | UnsetType = UNSET
    replicas: Annotated[int, Meta(ge=1, le=9)] | UnsetType = UNSET
    witnesses: Annotated[int, Meta(ge=0, le=9)] | UnsetType = UNSET
    waive_g1: bool = False
    """Has to be said with witnesses, as on the command line."""
    protected: bool | UnsetType = UNSET
    zone_rule: Literal["none", "best-effort", "hard"] | UnsetType = UNSET
    leader_zone: Text | UnsetType = UNSET
    learners: dict[Text, Annotated[int, Meta(ge=1)]] | UnsetType = UNSET
    """Zone (empty: anywhere) -> number."""
    max_bytes_per_s: Natural | UnsetType = UNSET
    max_records_per_s: Natural | UnsetType = UNSET
    weight: Annotated[int, Meta(ge=1, le=bounds.SHARD_WEIGHT_MAX)] | UnsetType = UNSET
    retention_age_s: Natural | UnsetType = UNSET
    retention_bytes: Natural | UnsetType = UNSET
    retention_records: Natural | UnsetType = UNSET
    labels: dict[Text, Text] | UnsetType = UNSET


POLICY: Final = (
    "protected",
    "zone_rule",
    "leader_zone",
    "learners",
    "max_bytes_per_s",
    "max_records_per_s",
    "weight",
    "retention_age_s",
    "retention_bytes",
    "retention_records",
)
"""The keys of a log that are fields of its ShardPolicy, by the same names."""


class Grant(_Table, frozen=True, kw_only=True):
    """[[grants]]: roles of an identity over a scope, which stands in one of them only."""

    identity: str
    scope: str
    roles: Annotated[list[Role], Meta(min_length=1)]

    @property
    def key(self) -> tuple[str, str]:
        """What it is about."""
        return self.identity, self.scope


class Denial(_Table, frozen=True, kw_only=True):
    """[[denials]]: roles, or "all", that an identity, or all that begin so, does not have."""

    identity: str
    scope: str
    roles: Annotated[list[str], Meta(min_length=1)]

    @property
    def key(self) -> tuple[str, str]:
        """What it is about."""
        return self.identity, self.scope


class Quota(_Table, frozen=True, kw_only=True):
    """[[quotas]]: what an identity, or every one (empty), may use of each store."""

    identity: str = ""
    requests_per_s: Natural | UnsetType = UNSET
    bytes_per_s: Natural | UnsetType = UNSET
    rpcs_max: Positive | UnsetType = UNSET
    streams_max: Positive | UnsetType = UNSET
    connections_max: Positive | UnsetType = UNSET
    address_connections_max: Positive | UnsetType = UNSET


class _File(_Table, frozen=True, kw_only=True):
    """The whole file. Each log is converted on its own, so that an error names it."""

    cluster_id: str = ""
    cluster: Settings | UnsetType = UNSET
    logs: dict[str, dict[str, object]] = {}
    grants: list[Grant] | UnsetType = UNSET
    denials: list[Denial] | UnsetType = UNSET
    quotas: list[Quota] | UnsetType = UNSET


class Declaration(msgspec.Struct, frozen=True, kw_only=True):
    """What a file says. `cluster_id` empty: it fits any cluster. UNSET: the file says nothing of
    that part.
    """

    cluster_id: str = ""
    settings: Settings | UnsetType = UNSET
    logs: dict[str, Log] = {}
    grants: list[Grant] | UnsetType = UNSET
    denials: list[Denial] | UnsetType = UNSET
    quotas: list[Quota] | UnsetType = UNSET

    @property
    def speaks_of_identities(self) -> bool:
        """Whether the access list has to be known."""
        return any(part is not UNSET for part in (self.grants, self.denials, self.quotas))


def parse(data: bytes) -> Declaration:
    """Check a file's content. Raises ConfigError, which names the path; TooLarge."""
    if len(data) > bounds.DECLARED_BYTES_MAX:
        raise TooLarge(
            "the declared cluster", name="file", value=len(data), limit=bounds.DECLARED_BYTES_MAX
        )
    try:
        raw = tomllib.loads(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError("", f"not TOML: {error}") from error
    file = converted(raw, _File)
    logs = {name: _log(name, keys) for name, keys in file.logs.items()}
    _check_timeout(file.cluster)
    _check_ids(logs)
    _check_rules("grants", file.grants, check_grantee)
    _check_rules("denials", file.denials, check_denied)
    _check_quotas(file.quotas)
    return Declaration(
        cluster_id=file.cluster_id,
        settings=file.cluster,
        logs=logs,
        grants=file.grants,
        denials=file.denials,
        quotas=file.quotas,
    )


def _check_timeout(settings: Settings | UnsetType) -> None:
    """HAKeeper counts in ticks. What is between two of them it would round, and the cluster would
    never be what the file says.
    """
    if settings is UNSET or settings.store_timeout_s is UNSET:
        return
    ticks = settings.store_timeout_s * bounds.HAKEEPER_TICKS_PER_S
    if abs(ticks - round(ticks)) > _ROUNDING * ticks:
        text = f"expected whole tenths of a second, got {settings.store_timeout_s:g}"
        raise ConfigError("cluster.store_timeout_s", text)


def _log(name: str, keys: dict[str, object]) -> Log:
    at = f"logs.{name}"
    try:
        msgspec.convert(name, type=Annotated[Text, Meta(min_length=1)])
    except msgspec.ValidationError as error:
        expected = f"expected a name of 1 to {bounds.NAME_BYTES_MAX} characters that can be shown"
        raise ConfigError("logs", f"{expected}, got {name!r}") from error
    if name == HAKEEPER_NAME:
        raise ConfigError(at, "it is HAKeeper's own log, which no file declares")
    log = converted(keys, Log, at)
    if log.witnesses and not log.waive_g1:
        text = "expected true: with witnesses an acknowledged append may be on one disk only"
        raise ConfigError(f"{at}.waive_g1", text)
    if log.replicas is not UNSET and log.replicas % 2 == 0:
        raise ConfigError(f"{at}.replicas", f"expected an odd number, got {log.replicas}")
    return log


def _check_ids(logs: dict[str, Log]) -> None:
    seen: dict[int, str] = {}
    for name, log in logs.items():
        if log.id is UNSET:
            continue
        if log.id in seen:
            raise ConfigError(f"logs.{name}.id", f"{log.id} is also logs.{seen[log.id]}")
        seen[log.id] = name


def _check_rules(
    part: str,
    rules: Sequence[Grant | Denial] | UnsetType,
    check: Callable[[str, str], None],
) -> None:
    seen: dict[tuple[str, str], int] = {}
    for position, rule in enumerate(() if rules is UNSET else rules):
        at = f"{part}[{position}]"
        try:
            check(rule.identity, rule.scope)
            denied_roles(rule.roles)
        except InvalidArgument as error:
            field = error.metadata.get("field", "")
            raise ConfigError(f"{at}.{field}", error.message) from error
        if rule.key in seen:
            raise ConfigError(at, f"the same identity and scope as {part}[{seen[rule.key]}]")
        seen[rule.key] = position


def _check_quotas(quotas: Sequence[Quota] | UnsetType) -> None:
    seen: dict[str, int] = {}
    for position, quota in enumerate(() if quotas is UNSET else quotas):
        if quota.identity in seen:
            text = f"the same identity as quotas[{seen[quota.identity]}]"
            raise ConfigError(f"quotas[{position}]", text)
        seen[quota.identity] = position
