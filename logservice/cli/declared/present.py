"""Present: what a cluster is now, in the terms of a declaration.

Theory of operation. Settings, logs and grants are three questions to HAKeeper, so what is read is
not one moment's. It need not be: each step of an `apply` asks again for what it is about to change
(`applying`). The access list is asked for only where somebody needs it, because it takes the role
admin over the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from logservice_client import LogClient
from logservice_wire.v1 import hakeeper_pb2
from msgspec import Struct

from logservice.cli.declared.declaration import POLICY, Settings
from logservice.hakeeper.commands.quotas import QUOTA_NAMES

Values = Mapping[str, object]
"""Key of the declaration -> value."""

Roles = Mapping[tuple[str, str], tuple[str, ...]]
"""Identity and scope -> roles, sorted."""


class PresentLog(Struct, frozen=True, kw_only=True):
    """A log that exists. `values`: every key of `Log` but `id` and `waive_g1`."""

    id: int
    name: str
    state: str
    values: Values


class Present(Struct, frozen=True, kw_only=True):
    """A cluster. `logs` by id; those that are deleted are none. `grants`, `denials` and `quotas`
    (by identity and value) are empty where the access list was not asked for.
    """

    cluster_id: str
    cluster_version: int
    stores: int
    settings: Values
    logs: Mapping[int, PresentLog]
    grants: Roles = {}
    denials: Roles = {}
    quotas: Mapping[str, Mapping[str, int]] = {}

    def named(self, name: str) -> PresentLog | None:
        """The living log that is called so."""
        return next((one for one in self.logs.values() if one.name == name), None)


async def read(client: LogClient, limit_s: Callable[[], float], *, identities: bool) -> Present:
    """Ask HAKeeper; `limit_s` says before each question how long it may take; `identities`: also
    for the access list. Raises what its answers raise.
    """
    keeper = client.hakeeper
    state = await keeper.cluster_state(timeout=limit_s())
    infos = await keeper.list_shards(states=("creating", "open", "closed"), timeout=limit_s())
    logs = [log_of(info) for info in infos]
    listed = hakeeper_pb2.AccessList()
    if identities:
        listed = await keeper.access_list(timeout=limit_s())
    return Present(
        cluster_id=state.cluster_id,
        cluster_version=state.cluster_version or 1,
        stores=sum(not store.expired for store in state.stores),
        settings=settings_of(state.settings),
        logs={log.id: log for log in logs},
        grants=roles_of(listed.grants),
        denials=roles_of(listed.denials),
        quotas=quotas_of(listed),
    )


def settings_of(found: hakeeper_pb2.Settings) -> Values:
    """The settings by the names of the declaration."""
    named = [name for name in Settings.__struct_fields__ if name != "store_timeout_s"]
    values = {name: getattr(found, name) for name in named}
    return {"store_timeout_s": found.store_timeout_ms / 1000, **values}


def log_of(info: hakeeper_pb2.ShardInfo) -> PresentLog:
    """A log by the names of the declaration."""
    policy = {name: getattr(info.policy, name) for name in POLICY}
    policy["learners"] = dict(sorted(info.policy.learners.items()))
    values = {
        "replicas": info.wanted_replicas,
        "witnesses": info.witnesses,
        **policy,
        "labels": dict(sorted(info.labels.items())),
    }
    return PresentLog(id=info.shard_id, name=info.name, state=info.state, values=values)


def roles_of(rules: Iterable[hakeeper_pb2.AccessGrant]) -> Roles:
    """Of grants, or of denials."""
    return {(one.identity, one.scope): tuple(sorted(one.roles)) for one in rules}


def quotas_of(listed: hakeeper_pb2.AccessList) -> Mapping[str, Mapping[str, int]]:
    """What is set, by identity."""
    return {
        one.identity: {name: getattr(one, name) for name in QUOTA_NAMES if one.HasField(name)}
        for one in listed.quotas
    }
