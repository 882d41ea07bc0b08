"""A late heartbeat of an earlier process must not silence the living one (INV-BEAT-1).

The simulator found this: a store restarted while its last heartbeat still waited at a paused leader
of shard 0. HAKeeper took that heartbeat for one of a newer process, refused the living store from
then on and declared it lost, and no shard on it was repaired.
"""

from __future__ import annotations

import pytest
from logservice_wire.errors import StaleEpoch

from logservice.hakeeper.commands import proposals
from logservice.ids import Incarnation
from tests.nodehost.test_heartbeats import Rig


async def late(rig: Rig, **fields: object) -> None:
    """A heartbeat that nobody has seen before."""
    [last] = rig.beats()[-1:]
    changed = proposals.StoreHeartbeat(
        last.store,
        last.host,
        last.peer_address,
        last.client_address,
        fields.get("directories", last.directories),
        4711,
        9,
        0,
        dict(last.labels),
    )  # type: ignore[arg-type]
    rig.shard0.propose(proposals.encode(changed))


async def test_the_living_process_comes_back_under_another_boot_id() -> None:
    rig = Rig()
    await rig.sender.beat_once()
    await late(rig)
    with pytest.raises(StaleEpoch):
        await rig.sender.beat_once()
    await rig.sender.beat_once()
    await rig.sender.beat_once()
    store = rig.state.stores["s1"]
    assert store.boot_id == rig.beats()[-1].boot_id
    assert store.boot_id not in (4711, rig.host.identity.boot_id)
    assert store.last_tick == rig.state.tick


async def test_one_whose_data_directory_was_replaced_stays_refused() -> None:
    rig = Rig()
    await rig.sender.beat_once()
    await late(rig, directories=(proposals.DirectoryReport(Incarnation(999)),))
    for _ in range(3):
        with pytest.raises(StaleEpoch):
            await rig.sender.beat_once()
    assert rig.state.stores["s1"].boot_id == 4711
