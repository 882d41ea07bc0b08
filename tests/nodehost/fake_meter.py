"""A LogMeter whose entries have the sizes a test gives them."""

from __future__ import annotations

from logservice.ids import Index, Lsn, ReplicaId, ShardId


class FakeMeter:
    """`sizes`: bytes of entries by index, the same for every replica; other entries have 1 byte."""

    def __init__(self, sizes: dict[int, int] | None = None) -> None:
        self.sizes = sizes or {}
        self.truncatable: dict[ShardId, int] = {}
        self.written = 0

    def bytes_between(
        self, shard: ShardId, replica: ReplicaId, after: Index, through: Index
    ) -> int:
        return sum(self.sizes.get(index, 1) for index in range(after + 1, through + 1))

    def bytes_written(self) -> int:
        return self.written

    def truncatable_bytes(self, shard: ShardId, replica: ReplicaId, truncation_lsn: Lsn) -> int:
        return self.truncatable.get(shard, 0)
