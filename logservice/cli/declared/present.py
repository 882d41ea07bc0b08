"""Present: what a cluster is now, in the terms of a declaration.

Theory of operation. Settings, logs and grants are three questions to HAKeeper, so what is read is
not one moment's. It need not be: each step of an `apply` asks again for what it is about to change
(`applying`). The access list is asked for only where somebody needs it, because it takes the role
admin over the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping

from logservice_client import LogClient
from logservice_wire.v1 import hakeeper_pb2
from msgspec import Struct

from logservice.cli.declared.declaration import POLICY, Settings

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
    """A cluster. `grants` None: not asked for. `logs` by id; those that are deleted are none."""

    cluster_id: str
    cluster_version: int
    stores: int
    settings: Values
    logs: Mapping[int, PresentLog]
    grants: Roles | None

    def named(self, name: str) -> PresentLog | None:
        """The living log that is called so."""
        return next((one for one in self.logs.values() if one.name == name), None)


async def read(client: LogClient, timeout_s: float, *, grants: bool) -> Present:
    """Ask HAKeeper. Raises what its answers raise."""
    keeper = client.hakeeper
    state = await keeper.cluster_state(timeout=timeout_s)
    infos = await keeper.list_shards(states=("creating", "open", "closed"), timeout=timeout_s)
    logs = [log_of(info) for info in infos]
    return Present(
        cluster_id=state.cluster_id,
        cluster_version=state.cluster_version or 1,
        stores=sum(not store.expired for store in state.stores),
        settings=settings_of(state.settings),
        logs={log.id: log for log in logs},
        grants=grants_of(await keeper.access_list(timeout=timeout_s)) if grants else None,
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


def grants_of(found: hakeeper_pb2.AccessList) -> Roles:
    """Who may do what."""
    return {(one.identity, one.scope): tuple(sorted(one.roles)) for one in found.grants}
