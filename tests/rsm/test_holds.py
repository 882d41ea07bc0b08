"""Holds with a revision and a time to live: what ends them, and what does not."""

from __future__ import annotations

import pytest
from logservice_wire.errors import InvalidArgument

from logservice.bounds import (
    HOLD_TTL_S_MIN,
    READER_HOLD_TTL_S_MAX,
    READER_HOLDS_MAX,
    READER_HOLDS_PER_OWNER_MAX,
)
from logservice.ids import Index, Lsn
from logservice.outcome import Applied
from logservice.owner import Author
from logservice.rsm.commands import (
    Close,
    ExpireHold,
    ReleaseHold,
    RenewHold,
    SetHold,
    SetHoldFor,
    Truncate,
    encode,
)
from logservice.rsm.state import Hold
from tests.owners import APP, OTHER, STORE
from tests.rsm.shard_driver import ShardDriver, refused

NAME = "replay"
NOTHING = Applied(value=0, duplicate=True)


@pytest.fixture
def shard() -> ShardDriver:
    shard = ShardDriver()
    shard.append(100)
    return shard


def hold(shard: ShardDriver, lsn: int = 50, ttl_s: int = 60, name: str = NAME) -> Index:
    """Set a hold and return its revision."""
    shard.value(SetHoldFor(APP, False, Lsn(lsn), ttl_s, name))
    found = shard.rsm.state.holds[name]
    assert found == Hold(Lsn(lsn), APP.identity, Index(shard.index), ttl_s)
    return found.revision


def test_a_hold_expires_and_what_waited_for_it_is_truncated(shard: ShardDriver) -> None:
    revision = hold(shard)
    shard.value(Truncate(APP, Lsn(80), 0))
    assert shard.status.truncated_lsn == 49
    assert shard.command(ExpireHold(revision, NAME)) == Applied(value=80)
    assert (shard.status.holds, shard.status.truncated_lsn) == ((), 80)


def test_inv_rsm_hold_revision_an_expiry_of_another_revision_does_nothing(
    shard: ShardDriver,
) -> None:
    """INV-RSM-HOLD-REVISION: late, early and repeated ones."""
    first = hold(shard)
    second = hold(shard, lsn=60)
    third = shard.value(RenewHold(APP, NAME))
    before = shard.rsm.state.holds[NAME]
    assert before.revision == third
    for revision in (first, second, Index(third + 1), Index(2**64 - 1)):
        assert shard.command(ExpireHold(revision, NAME)) == NOTHING
        assert shard.rsm.state.holds[NAME] == before
    assert shard.command(ExpireHold(Index(third), NAME)) == Applied(value=0)
    assert shard.command(ExpireHold(Index(third), NAME)) == NOTHING
    again = hold(shard)
    assert shard.command(ExpireHold(Index(third), NAME)) == NOTHING
    assert shard.rsm.state.holds[NAME].revision == again


def test_inv_rsm_hold_revision_a_hold_without_a_time_to_live_never_expires(
    shard: ShardDriver,
) -> None:
    revision = hold(shard, ttl_s=0)
    assert shard.command(ExpireHold(revision, NAME)) == NOTHING
    shard.value(SetHold(APP, False, Lsn(50), "of version 1"))
    for number in range(1, shard.index + 2):
        assert shard.command(ExpireHold(Index(number), "of version 1")) == NOTHING
    assert sorted(shard.rsm.state.holds) == ["of version 1", NAME]


def test_the_form_of_cluster_version_1_takes_the_time_to_live_away(shard: ShardDriver) -> None:
    revision = hold(shard)
    shard.value(SetHold(APP, False, Lsn(50), NAME))
    assert shard.rsm.state.holds[NAME] == Hold(Lsn(50), APP.identity)
    assert shard.command(ExpireHold(revision, NAME)) == NOTHING


def test_inv_rsm_hold_renewed_a_renewal_moves_nothing_and_makes_nothing(
    shard: ShardDriver,
) -> None:
    """INV-RSM-HOLD-RENEWED."""
    hold(shard)
    renewed = shard.command(RenewHold(APP, NAME))
    assert renewed == Applied(lsn=Lsn(50), value=shard.index)
    assert shard.rsm.state.holds[NAME] == Hold(Lsn(50), APP.identity, Index(shard.index), 60)
    shard.value(Truncate(APP, Lsn(80), 0))
    shard.value(ReleaseHold(APP, False, NAME))
    lost = ("HOLD_LOST", {"name": NAME, "first_lsn": "81"})
    assert refused(shard.command(RenewHold(APP, NAME))) == lost
    assert shard.rsm.state.holds == {}


def test_inv_rsm_hold_owner_only_the_owner_renews(shard: ShardDriver) -> None:
    hold(shard)
    before = shard.rsm.state.holds[NAME]
    denied = ("PERMISSION_DENIED", {"role": "admin", "owner": APP.identity})
    assert refused(shard.command(RenewHold(OTHER, NAME))) == denied
    assert shard.rsm.state.holds[NAME] == before


def test_an_override_moves_a_hold_with_its_time_and_leaves_it_its_owners(
    shard: ShardDriver,
) -> None:
    hold(shard)
    shard.value(SetHoldFor(OTHER, True, Lsn(70), 5, NAME))
    assert shard.rsm.state.holds[NAME] == Hold(Lsn(70), APP.identity, Index(shard.index), 5)


def test_holds_of_a_closed_log_are_renewed_and_expire(shard: ShardDriver) -> None:
    hold(shard)
    shard.command(Close(APP))
    renewed = shard.value(RenewHold(APP, NAME))
    shard.value(Truncate(APP, Lsn(80), 0))
    assert shard.command(ExpireHold(Index(renewed), NAME)) == Applied(value=80)


def test_every_change_of_a_hold_can_be_seen(shard: ShardDriver) -> None:
    seen = [shard.rsm.state.hold_changes]

    def changed() -> bool:
        seen.append(shard.rsm.state.hold_changes)
        return seen[-1] != seen[-2]

    revision = hold(shard)
    assert changed()
    shard.command(ExpireHold(Index(revision - 1), NAME))
    assert not changed()
    shard.value(RenewHold(APP, NAME))
    assert changed()
    shard.command(ExpireHold(Index(shard.index), NAME))
    assert changed()
    hold(shard)
    assert changed()
    shard.value(ReleaseHold(APP, False, NAME))
    assert changed()
    shard.append()
    assert not changed()


def set_for_reader(
    shard: ShardDriver, name: str, author: Author = APP, ttl_s: int = 60
) -> tuple[str, dict[str, str]] | None:
    """None when it is set, else why not."""
    outcome = shard.command(SetHoldFor(author, False, Lsn(50), ttl_s, name))
    return None if isinstance(outcome, Applied) else refused(outcome)


@pytest.mark.parametrize("ttl_s", [HOLD_TTL_S_MIN, READER_HOLD_TTL_S_MAX])
def test_a_readers_hold_expires_always(shard: ShardDriver, ttl_s: int) -> None:
    assert set_for_reader(shard, "reader:a", ttl_s=ttl_s) is None
    for wrong in (0, HOLD_TTL_S_MIN - 1, READER_HOLD_TTL_S_MAX + 1):
        with pytest.raises(InvalidArgument):
            encode(SetHoldFor(APP, False, Lsn(50), wrong, "reader:a"))
    # The bound is that of readers' holds only.
    for other in (0, READER_HOLD_TTL_S_MAX + 1):
        encode(SetHoldFor(APP, False, Lsn(50), other, "reader"))


def test_readers_holds_of_one_identity_are_few(shard: ShardDriver) -> None:
    for number in range(READER_HOLDS_PER_OWNER_MAX):
        assert set_for_reader(shard, f"reader:{number}") is None
    why = set_for_reader(shard, "reader:one-more")
    assert why is not None
    assert why[0] == "TOO_LARGE"
    assert why[1]["limit"] == str(READER_HOLDS_PER_OWNER_MAX)
    assert set_for_reader(shard, "reader:0") is None  # it moves
    assert set_for_reader(shard, "of-no-reader") is None
    assert set_for_reader(shard, "reader:of-another", OTHER) is None
    shard.value(ReleaseHold(APP, False, "reader:3"))
    assert set_for_reader(shard, "reader:one-more") is None


def test_readers_leave_room_for_other_holds(shard: ShardDriver) -> None:
    for number in range(READER_HOLDS_MAX):
        author = Author(f"reader-{number // READER_HOLDS_PER_OWNER_MAX}", STORE)
        assert set_for_reader(shard, f"reader:{number}", author) is None
    assert set_for_reader(shard, "reader:late", OTHER) == ("BUSY", {"retry_after_ms": "1000"})
    hold(shard)
    assert len(shard.rsm.state.holds) == READER_HOLDS_MAX + 1
