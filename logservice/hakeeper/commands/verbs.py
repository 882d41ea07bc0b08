"""Verbs: what a person, or a controller, wishes of stores, replicas and leaders.

Theory of operation. A verb changes a wish in the replicated state and nothing else. The checkers
compare wishes with what is reported, and plan what is missing (`repair`). So a verb that is
repeated changes nothing, a new leader of shard 0 goes on where the old one was, and a wish that is
withdrawn is no longer worked for. `force` says that the caller knows the impact and wants it
anyway; it is audited with the request. `reason` is for people.

All of these exist from cluster version 2 on.
"""

from __future__ import annotations

import enum
from typing import Annotated

from msgspec import Meta, Struct

from logservice.hakeeper.commands.given_out import GivenOut
from logservice.hakeeper.commands.quotas import IdentityQuota
from logservice.hakeeper.commands.wire_types import (
    MembershipBytes,
    Name,
    Natural,
    Positive,
    Shard,
    Store,
    StoreIncarnation,
    Text,
)
from logservice.ids import StoreId


class StoreMode(enum.StrEnum):
    """What a store is used for."""

    OPEN = "open"
    """It gets new replicas and leaders."""
    READ_ONLY = "read-only"
    """It keeps the replicas that it has, and gets no new ones."""
    DRAINING = "draining"
    """Its leaders and replicas go elsewhere, and it gets no new ones."""


class WorkState(enum.StrEnum):
    """What one of the database's own services does."""

    WORKING = "working"
    """It takes new work. A service begins so."""
    DRAINING = "draining"
    """It finishes what it has, and takes nothing new."""
    DRAINED = "drained"
    """It was told to drain, and says that it has nothing left."""


class Errand(enum.StrEnum):
    """What a one-time wish about a replica asks for."""

    MOVE = "move"
    """The voter on `source` shall be on `target`."""
    ADD = "add"
    """The next voter that the policy wants shall be on `target`."""
    REMOVE = "remove"
    """The next voter that the policy does not want any more shall be the one on `source`."""


class SetStoreMode(
    Struct, tag="mode", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """Use the store in that way from now on: drain it, close it for new replicas, open it."""

    store: Store
    mode: StoreMode
    reason: Text = ""
    force: bool = False


class DrainDirectory(
    Struct,
    tag="drain-directory",
    array_like=True,
    frozen=True,
    forbid_unknown_fields=True,
    gc=False,
):
    """Leaders and replicas leave that data directory of the store, and it gets no new ones. `undo`:
    use it again.
    """

    store: Store
    incarnation: StoreIncarnation
    undo: bool = False
    force: bool = False


class SetRepair(
    Struct, tag="repair", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """Replace nothing for so many ticks: no voter of `store`, or none at all when it is empty. With
    0 ticks repairs go on.
    """

    store: Text
    off_ticks: Natural
    reason: Text = ""


class ForgetStore(
    Struct, tag="forget", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """The store does not belong to the cluster any more. `lost`: it still has replicas, and will
    never come back.
    """

    store: Store
    lost: bool = False
    force: bool = False


class WishReplica(
    Struct, tag="wish", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """A one-time wish about a replica; which of `source` and `target` counts, `Errand` says."""

    errand: Errand
    shard: Shard
    source: Text = ""
    target: Text = ""
    reason: Text = ""
    force: bool = False


class SetLeader(
    Struct, tag="leader", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """Keep the shard's leader for so many ticks on `store`, or, when that is empty, where it is:
    HAKeeper moves it for no other reason. With 0 ticks that ends.
    """

    shard: Shard
    ticks: Natural
    store: Text = ""
    reason: Text = ""


class CancelWish(
    Struct, tag="cancel", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """Withdraw a one-time wish. What was begun for it is taken back where it is not done yet."""

    wish: Positive


class CancelOperator(
    Struct,
    tag="cancel-operator",
    array_like=True,
    frozen=True,
    forbid_unknown_fields=True,
    gc=False,
):
    """Give an operator up, and the wish that it is for. A repair begins again later, elsewhere."""

    operator: Positive


class ChangeSettings(
    Struct, tag="settings", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """Change settings of the cluster; 0 and the empty text keep what is set."""

    store_timeout_ticks: Natural = 0
    default_replicas: Natural = 0
    joining: Text = ""
    force: bool = False
    replica_balance: Text = ""
    leader_balance: Text = ""
    replace_stuck: Text = ""
    catch_up_bytes_per_s: Natural | None = None
    """None keeps what is set; with 0 each store does what it is configured to."""
    tail_read_bytes_per_s: Natural | None = None
    catch_up_read_bytes_per_s: Natural | None = None


class SetQuota(
    Struct, tag="quota", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """Set the values that `quota` has for its identity; those named in `clear` are set no more."""

    quota: IdentityQuota
    clear: Annotated[tuple[Name, ...], Meta(max_length=16)] = ()


class Rebalance(
    Struct, tag="rebalance", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """Balance replicas, leaders or both, until nothing is left to move. `stop`: end that."""

    replicas: bool
    leaders: bool
    stop: bool = False


class SetWorkState(
    Struct, tag="work-state", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """Let one of the database's own services drain, or work again."""

    service: Store
    work_state: WorkState


class CreateTnShard(
    Struct, tag="create-tn", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """One `tn` service shall serve the log's TN shard; of that identity alone, if it is named."""

    shard: Shard
    identity: Text = ""


class DeleteTnShard(
    Struct, tag="delete-tn", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """Nobody shall serve that TN shard any more; the log stays."""

    tn_shard: Positive


class AdoptShard(
    Struct, tag="adopt", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """The log lost its majority for good, and goes on with this membership, which
    `logservice recover` has made.
    """

    shard: Shard
    membership: MembershipBytes
    reason: Text = ""


class SkipNumbers(
    Struct, tag="skip-numbers", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """Another cluster gave these out, and its logs come back here: give none of them out again."""

    given: GivenOut


Verb = (
    SetStoreMode
    | SetRepair
    | ForgetStore
    | WishReplica
    | SetLeader
    | CancelWish
    | CancelOperator
    | ChangeSettings
    | Rebalance
    | SetWorkState
    | CreateTnShard
    | DeleteTnShard
    | AdoptShard
    | SetQuota
    | DrainDirectory
    | SkipNumbers
)

ANYWHERE = StoreId("")
"""The store of a leader's wish that names none."""
