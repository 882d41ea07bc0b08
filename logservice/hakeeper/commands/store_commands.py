"""Store commands: what HAKeeper asks a store or a service to do, and what it hears back.

Theory of operation. A command travels in the answers to the receiver's heartbeats. Every answer
carries it until the receiver acknowledges its id with a result, or until the operator that wanted
it no longer does (delivery at least once). So every command is idempotent and exact:

- a replica is always named by shard *and* replica id, which is never reused;
- a replica is started only in the data directory (`incarnation`) the membership binds it to;
- `fresh` says whether the replica may be created from nothing. It is true only until the first
  report of the replica. After that missing data is a loss to be reported, and never a reason to
  begin again empty;
- a membership change is a compare-and-swap on `expected_epoch`, so a late one changes nothing.

Nothing here decides anything: these are values, encoded by `proposals` and `replies`.
"""

from __future__ import annotations

from msgspec import Struct

from logservice.config_change import ChangeKind, ChangeStep, ConfigChange
from logservice.hakeeper.commands.wire_types import (
    Detail,
    LogIndex,
    MembershipBytes,
    Name,
    Natural,
    RaftTerm,
    Replica,
    Shard,
    StoreIncarnation,
    Text,
)
from logservice.ids import Incarnation, StoreId


class StartReplica(
    Struct, tag="start", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """Run a replica. `membership`: what it begins with if it has no data. `join`: whether it then
    waits for the leader's snapshot instead of taking part in the bootstrap.
    """

    shard: Shard
    replica: Replica
    incarnation: StoreIncarnation
    membership: MembershipBytes
    join: bool
    fresh: bool


class RemoveReplica(
    Struct, tag="remove", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """Stop this replica if it runs, and remove its data for ever: it is in no membership."""

    shard: Shard
    replica: Replica


class Step(Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """`config_change.ChangeStep`, encodable."""

    kind: ChangeKind
    replica: Replica
    store: Text = ""
    incarnation: StoreIncarnation = Incarnation(0)


class ChangeMembership(
    Struct, tag="change", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """Propose one ConfigChange. All steps take effect together (joint consensus), or none does."""

    shard: Shard
    expected_epoch: LogIndex
    steps: tuple[Step, ...]

    def config_change(self) -> ConfigChange:
        """The change as Raft takes it."""
        return ConfigChange(
            steps=tuple(
                ChangeStep(step.kind, step.replica, StoreId(step.store), step.incarnation)
                for step in self.steps
            ),
            expected_epoch=self.expected_epoch,
        )


class TransferLeader(
    Struct, tag="transfer", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """Move leadership to `target`, for example before maintenance.

    A transfer never lowers fault tolerance.
    """

    shard: Shard
    target: Replica


class ServiceOrder(
    Struct, tag="service", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """A command for one of the database's own services; HAKeeper does not look inside."""

    kind: Name
    payload: bytes


StoreCommand = StartReplica | RemoveReplica | ChangeMembership | TransferLeader
AnyCommand = StartReplica | RemoveReplica | ChangeMembership | TransferLeader | ServiceOrder


def described(command: AnyCommand) -> str:
    """One line about a command, for people."""
    if isinstance(command, StartReplica):
        how = "which joins" if command.join else "a first member"
        return f"start replica {command.replica} of shard {command.shard}, {how}"
    if isinstance(command, RemoveReplica):
        return f"remove replica {command.replica} of shard {command.shard}"
    if isinstance(command, ChangeMembership):
        steps = ", ".join(
            f"{step.kind.name.lower().replace('_', ' ')} {step.replica}"
            + (f" on {step.store}" if step.store else "")
            for step in command.steps
        )
        return f"change the membership of shard {command.shard}: {steps}"
    if isinstance(command, TransferLeader):
        return f"hand the leadership of shard {command.shard} to replica {command.target}"
    return f"an order for a service, {command.kind}"


class QueuedCommand(Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """A command in a queue. `id` is unique over the cluster's life. `operator` is 0 when a person
    asked for it. `term` is the term that shard 0 was in when the command was queued; it is
    information for the receiver's log.
    """

    id: Natural
    operator: Natural
    term: RaftTerm
    command: AnyCommand


class CommandResult(Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """Acknowledges command `id`. `reason` is empty for success, else a Reason value."""

    id: Natural
    reason: Text = ""
    detail: Detail = ""
