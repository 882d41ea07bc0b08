"""restore_target: which log of the cluster an archived one is restored into.

Theory of operation. The log is found by its name. If there is none it is created, under an id of
the operator's choice or a new one; ids are never given out twice, so the old id is free only in a
cluster that never had it. A restore that was killed behind that finds its log again by the name.
Whether it may be restored into is for the log to say (INV-RESTORE-1). Between its creation and the
begin of its restore it is an ordinary log: who appends to it in that moment keeps it, and the
restore is refused.

A half restored log is given up by its deletion, which closes it first. A log that is open is never
given up here.
"""

from __future__ import annotations

from dataclasses import dataclass

from logservice_client import LogClient
from logservice_wire.errors import InvalidArgument, ShardNotFound
from logservice_wire.v1 import log_pb2

from logservice import bounds
from logservice.archive.restoring import check_no_mirror


@dataclass(frozen=True, slots=True)
class Target:
    """A log of the cluster. restoring: how far it is; None when its restore has not begun."""

    shard_id: int
    name: str
    restoring: log_pb2.Restoring | None


async def find(client: LogClient, name: str, shard_id: int) -> Target | None:
    """The log of that name; None when there is none. `shard_id`: its id, if that is not 0.

    Raises InvalidArgument when it has another id.
    """
    try:
        info = await client.hakeeper.resolve_shard(name, fresh=True)
    except ShardNotFound:
        return None
    if shard_id not in (0, info.shard_id):
        raise InvalidArgument(f"{name} is log {info.shard_id}", field="id")
    status = await client.shard(info.shard_id).status(timeout=bounds.RESTORE_PATIENCE_S)
    restoring = status.restoring if status.HasField("restoring") else None
    return Target(info.shard_id, name, restoring)


async def create(client: LogClient, name: str, shard_id: int) -> Target:
    """A new log."""
    made = await client.hakeeper.create_shard(name=name, shard_id=shard_id)
    await client.shard(made).connect(timeout=bounds.RESTORE_PATIENCE_S)
    return Target(made, name, None)


async def give_up(client: LogClient, target: Target) -> None:
    """Delete a log that is not restored yet. Raises InvalidArgument for one that is open, and for a
    mirror.
    """
    if target.restoring is None:
        raise InvalidArgument(f"{target.name} is not being restored", field="log")
    check_no_mirror(target.restoring)
    await client.hakeeper.delete_shard(
        target.shard_id, target.name, timeout=bounds.RESTORE_PATIENCE_S
    )
