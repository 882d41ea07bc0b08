"""Full disks: nobody refuses blocks without a reason, and no store takes its disk's last bytes.

INV-SPACE-2 is looked at from outside: when somebody else has left a disk more than the share for
the derived index, the log storage that runs then never goes below that (a crash may bring unlinked
files back). That a store does not give up on a full disk is `SimStore.gave_up`'s; that freed space
is enough for appends is the liveness phase's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from logservice.sim.checks import Checker

if TYPE_CHECKING:
    from logservice.sim.store import SimStore

_INDEX_SHARE = 8
"""See `logdb.disk_space`."""


class DiskRoom(Checker):
    """Looks at every running store now and then."""

    name = "disk-room"

    def sample(self, stores: Sequence[SimStore]) -> None:
        """See `Checker`."""
        for store in stores:
            config = store.world.config
            disk, same_life = store.disk, store.up and store.filled_life == store.lives
            line = min(disk.left_bytes, config.reserve_bytes // _INDEX_SHARE)
            left = disk.left_by_log_storage()
            if disk.full and same_life and left < line:
                self.wrong(f"{store.store_id} has {left} bytes left of {disk.left_bytes}")
            if config.calm:
                for replica in store.replicas():
                    if replica.ready_to_lead and not replica.raft.block_room:
                        self.wrong(f"{store.store_id} refuses blocks of shard {replica.shard}")
