"""Planning: from the options and where the logs stand now to LSN ranges, one per Spark task.

A plan is fixed: the ends are resolved once, by asking, and every task reads exactly its range, so
that reading the same plan again gives the same rows. LSNs are dense, so cutting a range needs no
knowledge of blocks; a block on a cut is read by both neighbours, each showing its own part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from logservice_client import SyncLogClient, TlsFiles
from logservice_client.sync import SyncShard
from logservice_client.tls import tls_from_files

from pyspark_logservice.options import EARLIEST, LATEST, ReadOptions


class DataLossError(RuntimeError):
    """Records of the asked range are gone or never were; the message says which and what to do."""


@dataclass(frozen=True, slots=True)
class LsnRange:
    """``start <= lsn < end`` of one shard, and the stores that have it, the preferred one first.
    `near`: those of them that are in the zone of the options. `lineage`: the log's when the plan
    was made; a task reads no other history.
    """

    shard: int
    start: int
    end: int
    addresses: tuple[str, ...] = ()
    near: tuple[str, ...] = ()
    lineage: bytes = b""

    @property
    def records(self) -> int:
        """The number of LSNs."""
        return self.end - self.start


def plan(options: ReadOptions) -> list[LsnRange]:
    """The ranges to read; empty when there is nothing. Raises DataLossError, LogServiceError."""
    with SyncLogClient(options.endpoints, tls=tls_of(options), zone=options.zone) as client:
        shards = options.shards
        if shards is None:
            state = client.hakeeper.cluster_state(timeout=options.rpc_timeout_s)
            shards = tuple(sorted(info.shard_id for info in state.shards if info.shard_id > 0))
        if options.log:
            found = client.hakeeper.resolve_shard(options.log, timeout=options.rpc_timeout_s)
            shards = (found.shard_id,)
        ranges = []
        for shard in shards:
            log = client.shard(shard)
            status = log.status(timeout=options.rpc_timeout_s)
            start, end = resolve(
                options, shard, status.position.first_lsn, status.position.applied_lsn
            )
            start, end = narrow(options, log, start, end)
            addresses = client.replica_addresses(shard) or tuple(options.endpoints.split(","))
            lineage = log.lineage.id if log.lineage is not None else b""
            ranges.append(
                LsnRange(shard, start, end, addresses, client.near_addresses(shard), lineage)
            )
    return split(ranges, options.partitions_min, options.partition_records_max)


def resolve(options: ReadOptions, shard: int, first_lsn: int, applied_lsn: int) -> tuple[int, int]:
    """Start and end of what to read of one shard, whose readable LSNs are given."""
    start, end = options.starting.of(shard), options.ending.of(shard)
    start = first_lsn if start == EARLIEST else start
    end = applied_lsn + 1 if end == LATEST else end
    if end > applied_lsn + 1 or start > applied_lsn + 1:
        raise DataLossError(
            f"shard {shard}: asked for LSNs {start} to {end - 1}, but the newest is {applied_lsn}"
        )
    if start < first_lsn:
        check_loss(options, shard, start, first_lsn)
        start = first_lsn
    return start, max(start, end)


def narrow(options: ReadOptions, log: SyncShard, start: int, end: int) -> tuple[int, int]:
    """The part of a range that was appended between the times of the options."""
    if options.ending_time_us:
        found = log.lsn_at_time(options.ending_time_us, timeout=options.rpc_timeout_s)
        end = max(start, min(end, found.lsn))
    if options.starting_time_us:
        found = log.lsn_at_time(options.starting_time_us, timeout=options.rpc_timeout_s)
        if found.truncated and options.fail_on_data_loss:
            raise DataLossError(
                f"shard {log.shard_id}: records from that time on may have been truncated; the "
                f"oldest record is {found.lsn}. Keep records with a hold, or set failOnDataLoss to "
                "false to read what is left"
            )
        start = max(start, min(end, found.lsn))
    return start, end


def check_loss(options: ReadOptions, shard: int, lsn: int, first_lsn: int) -> None:
    """Raise DataLossError for truncated records unless the user said that losing them is fine."""
    if options.fail_on_data_loss:
        raise DataLossError(
            f"shard {shard}: LSNs {lsn} to {first_lsn - 1} were truncated; the oldest record is "
            f"{first_lsn}. Start there, keep records with a hold, or set failOnDataLoss to false "
            "to read what is left"
        )


def split(
    ranges: Sequence[LsnRange], partitions_min: int, partition_records_max: int
) -> list[LsnRange]:
    """Cut into at least `partitions_min` pieces of at most `partition_records_max` records.

    Pieces of a shard prefer its replicas in turn, so that tasks spread over stores; with near ones
    they prefer those in turn, and the others after them.
    """
    total = sum(whole.records for whole in ranges)
    pieces = []
    for whole in ranges:
        if whole.records == 0:
            continue
        share = -(-partitions_min * whole.records // total)
        count = min(max(share, -(-whole.records // partition_records_max)), whole.records)
        for number in range(count):
            others = tuple(one for one in whole.addresses if one not in whole.near)
            pieces.append(
                LsnRange(
                    whole.shard,
                    whole.start + whole.records * number // count,
                    whole.start + whole.records * (number + 1) // count,
                    _turned(whole.near, number) + _turned(others, number),
                    whole.near,
                    whole.lineage,
                )
            )
    return pieces


def _turned(addresses: tuple[str, ...], number: int) -> tuple[str, ...]:
    """The same addresses in their order, beginning with another one for every number."""
    turn = number % len(addresses) if addresses else 0
    return addresses[turn:] + addresses[:turn]


def tls_of(options: ReadOptions) -> TlsFiles | None:
    """The TLS files of the options, as they are on this machine; None for plaintext."""
    return tls_from_files(
        options.tls_ca, options.tls_certificate, options.tls_key, options.tls_server_name
    )
