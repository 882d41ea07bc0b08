"""Delivery: commands stay queued until they are acknowledged or no longer wanted.

Theory of operation. A command is queued for a store (or a service) with an id that is unique over
the cluster's life. The answer to every heartbeat carries the oldest unacknowledged commands again,
because an answer may be lost after the heartbeat was committed (MatrixOne lost bootstrap commands
that way). A command leaves the queue when a heartbeat of the same store carries its result, when
its operator gives it up, or when the store came back without a data directory that it had: the
command may have been meant for that one.

An acknowledgement says that the command was carried out or failed, and not that its effect is
visible: only reports finish an operator.
"""

from __future__ import annotations

from collections.abc import Sequence

from logservice_wire.errors import Reason

from logservice import bounds
from logservice.hakeeper.commands.store_commands import (
    AnyCommand,
    CommandResult,
    QueuedCommand,
    StartReplica,
)
from logservice.hakeeper.state import Operator, State, StoreState
from logservice.hakeeper.stores.drives import hear_one
from logservice.ids import StoreId


def queue_command(
    state: State, queue: list[QueuedCommand], operator: int, command: AnyCommand
) -> int:
    """Append a command to a queue and return its id."""
    command_id = state.next_command_id
    state.next_command_id += 1
    queue.append(QueuedCommand(command_id, operator, state.term, command))
    return command_id


def send(state: State, operator: Operator, target: StoreId, command: AnyCommand) -> None:
    """Queue an operator's command, replacing the one it sent before."""
    recall(state, operator)
    operator.command_id = queue_command(state, state.stores[target].queue, operator.id, command)
    operator.command = command
    operator.target = target
    operator.issued_tick = state.tick


def recall(state: State, operator: Operator) -> None:
    """Take back the operator's command if it was not acknowledged. It may have been executed."""
    store = state.stores.get(operator.target)
    if store is not None:
        store.queue = [item for item in store.queue if item.id != operator.command_id]


def pending(state: State, operator: Operator) -> bool:
    """Whether the operator's command still waits for its acknowledgement."""
    store = state.stores.get(operator.target)
    return store is not None and any(item.id == operator.command_id for item in store.queue)


def due(queue: Sequence[QueuedCommand]) -> tuple[QueuedCommand, ...]:
    """The commands that the next answer carries."""
    return tuple(queue[: bounds.HAKEEPER_COMMANDS_PER_REPLY_MAX])


def acknowledge(state: State, store: StoreState, results: Sequence[CommandResult]) -> None:
    """Take in results. A result is ignored when its command is not in this store's queue."""
    queued = {item.id: item for item in store.queue}
    for result in results:
        item = queued.pop(result.id, None)
        if item is None:
            continue
        state.dirty = True
        operator = state.operators.get(item.operator)
        if operator is None or operator.command_id != result.id:
            continue
        hear_one(state, operator)
        operator.error = f"{result.reason}: {result.detail}" if result.reason else ""
        if result.reason:
            operator.failures += isinstance(item.command, StartReplica)
            _learn_of_lost_data(state, item.command, result)
        if result.reason == Reason.NOT_LEADER.value:
            # This heartbeat, or one soon after, says who leads. Then the command is sent there
            # at once, without the wait for a retry.
            operator.command = None
    store.queue = [item for item in store.queue if item.id in queued]


def _learn_of_lost_data(state: State, command: AnyCommand, result: CommandResult) -> None:
    # A replica that was reported before and has no data now is lost, exactly as with a lost disk.
    # To start it empty under its old id could lose acknowledged records.
    if not isinstance(command, StartReplica) or command.fresh:
        return
    shard = state.shards.get(command.shard)
    if result.reason == Reason.SHARD_NOT_FOUND.value and shard is not None:
        shard.lost = sorted({*shard.lost, command.replica})
