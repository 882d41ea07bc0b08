"""acked_records: what was acknowledged is read back, whole and in its order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from logservice_client import Records, SyncLogClient


def check_acked(client: SyncLogClient, acked: Mapping[int, Sequence[bytes]]) -> None:
    """`acked`: the records of each log, of which nobody truncated any."""
    for shard, wanted in acked.items():
        found = [
            record
            for part in client.shard(shard).follow(1, until_tail=True)
            if isinstance(part, Records)
            for record in part.records()
        ]
        assert found == [*wanted], f"shard {shard}: {len(found)} of {len(wanted)} records"
