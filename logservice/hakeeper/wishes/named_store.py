"""Named stores: what a person is told who names a store that there is not.

Theory of operation. A slip of the pen must not read as "done", and the answer has to say enough to
correct it. So it names the stores there are, those first that begin as the wrong name does; of a
shard, the stores that have a voter. It is words only: nothing is decided by them.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection

from logservice import bounds
from logservice.hakeeper.state import ShardState, State
from logservice.ids import StoreId


def no_store(state: State, name: str) -> str:
    """No store is called so; these are there."""
    return f"no store is called {name}; there are {_some(state.stores, name)}"


def no_voter(shard: ShardState, name: str) -> str:
    """The store has no voter of the shard; these have one."""
    members = shard.members
    there = {one.store_id for one in members.members if one.replica_id in members.voters}
    return f"{name} has no voter of shard {shard.shard}; they are on {_some(there, name)}"


def never_known(state: State, name: str) -> bool:
    """Whether no store is or was called so. What was forgotten is no slip of the pen: a wish that
    it should leave is done.
    """
    return name not in state.stores and name not in state.gone_stores


def _some(stores: Collection[StoreId], name: str) -> str:
    if not stores:
        return "none"
    nearest = sorted(stores, key=lambda one: (-_alike(one, name), one))
    shown = nearest[: bounds.STORES_NAMED_MAX]
    more = f" and {len(nearest) - len(shown)} more" if len(nearest) > len(shown) else ""
    return ", ".join(shown) + more


def _alike(one: str, other: str) -> int:
    """How many characters both begin with."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
