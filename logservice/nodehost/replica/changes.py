"""Changes: which replicas may not be what they were when that was asked last.

Theory of operation. Heartbeats tell each second what has changed of the replicas here, and of
10 000 idle ones nothing has. A quiesced replica gives the same picture until it says that it has
changed (`Replica.changed`). So only those that said so, and those that are ticked, are worth a
look. To look at all of them would touch the memory of each, which is in no cache any more when a
second has passed.

INV-HOST-CHANGES: a replica that is not among `take` gives the picture that it gave when it was.
"""

from __future__ import annotations

from collections.abc import Mapping

from logservice.ids import ShardId
from logservice.nodehost.info import ReplicaInfo
from logservice.nodehost.replica.replica import Replica


class Changes:
    """One per NodeHost; its heartbeats alone take them."""

    def __init__(self, running: Mapping[ShardId, Replica]) -> None:
        """`running`: the replicas that run, now and later."""
        self._running = running
        self._shards: set[ShardId] = set()

    def touch(self, shard: ShardId) -> None:
        """Its replica woke up, has changed, began or stopped."""
        self._shards.add(shard)

    def touch_all(self) -> None:
        """Whoever asks next knows nothing."""
        self._shards.update(self._running)

    def take(self) -> list[tuple[ShardId, ReplicaInfo | None]]:
        """Their pictures, in no order; None where no replica runs any more. A replica that is
        ticked is there each time.
        """
        found: list[tuple[ShardId, ReplicaInfo | None]] = []
        quiet = []
        for shard in self._shards:
            replica = self._running.get(shard)
            found.append((shard, replica.info() if replica is not None else None))
            if replica is None or not replica.ticked:
                quiet.append(shard)
        self._shards.difference_update(quiet)
        return found
