"""given_out: the numbers that shard 0 gives out once, and how it goes on above what was given out.

Theory of operation. People and programs keep these numbers: ids of AllocateIds and of logs, replica
ids, revisions of events, versions. Shard 0 may lose the entries that gave some of them out: it goes
on from an old copy of itself (`repair.recovery`), or a new cluster takes over the logs of one that
is gone (`archive.restore_all`). Then it *skips* numbers: everything goes on a step above the last
number that is known to be given out. The step is more than can be given out behind what is known.

Ids of AllocateIds have a counter for each key, and which keys there were may be lost, too. So one
number, `State.ids_from`, is above those of all keys, and every key begins there.

INV-HK-GIVEN-OUT: after `go_on_above(state, given)` nothing below `given` plus the step is given
out. To skip the same numbers twice skips them once.
"""

from __future__ import annotations

from typing import Final

from logservice import bounds
from logservice.hakeeper.commands.given_out import GivenOut
from logservice.hakeeper.state import State

_ONE_BY_ONE: Final = (
    "next_shard_id",
    "next_operator_id",
    "next_command_id",
    "next_wish_id",
    "next_tn_shard",
    "access_version",
    "limits_version",
    "quotas_version",
)
"""What has the same name in `State` and in `GivenOut`, and grows by one."""


def given_out(state: State) -> GivenOut:
    """What was given out so far."""
    return GivenOut(
        **{name: getattr(state, name) for name in _ONE_BY_ONE},
        next_replica_id=state.next_replica_id,
        next_id=max([state.ids_from, *state.id_counters.values()]),
        revision=state.feed.last,
        deleted=tuple(one for one in state.deleted if one[1] <= bounds.GIVEN_OUT_MAX),
    )


def go_on_above(state: State, given: GivenOut) -> None:
    """INV-HK-GIVEN-OUT, but for the ids of deleted logs."""
    for name in _ONE_BY_ONE:
        _raise(state, name, getattr(given, name), bounds.RECOVERED_NUMBER_STEP)
    _raise(state, "next_replica_id", given.next_replica_id, bounds.RECOVERED_REPLICA_STEP)
    _raise(state, "ids_from", given.next_id, bounds.RECOVERED_ID_STEP)
    state.id_counters = {
        key: number for key, number in state.id_counters.items() if number > state.ids_from
    }
    revision = given.revision + bounds.RECOVERED_NUMBER_STEP
    if revision > state.feed.last:
        # Whoever watched is told that events are missing, and looks at the state.
        state.feed.last = revision
        state.feed.ring = []


def _raise(state: State, name: str, given: int, step: int) -> None:
    setattr(state, name, max(getattr(state, name), given + step))
