"""Full disks: nobody refuses blocks without a reason, and no store takes its disk's last bytes.

INV-SPACE-2 is looked at from outside: when a segment is made on a full disk, what the derived index
needs is left free, or the ballast was there to give it. That a store does not give up on a full
disk is `SimStore.gave_up`'s; that freed space is enough for appends is the liveness phase's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from logservice.sim.checks import Checker

if TYPE_CHECKING:
    from logservice.sim.store import SimStore

_INDEX_SHARE = 8
"""See `logdb.space.disk_space`."""


class DiskRoom(Checker):
    """Looks at every store now and then."""

    name = "disk-room"

    def sample(self, stores: Sequence[SimStore]) -> None:
        """See `Checker`."""
        for store in stores:
            config, disk = store.world.config, store.disk
            needed = config.reserve_bytes // _INDEX_SHARE
            if disk.full and disk.least_after_segment < min(needed, disk.left_bytes):
                self.wrong(f"{store.store_id}: a segment left {disk.least_after_segment} bytes")
            if config.calm:
                for replica in store.replicas():
                    if replica.ready_to_lead and not replica.raft.block_room:
                        self.wrong(f"{store.store_id} refuses blocks of shard {replica.shard}")
