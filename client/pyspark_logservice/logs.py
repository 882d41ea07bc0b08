"""Logs: which ones the options mean, and where they stand; asked on the driver.

A pattern or * means the logs of the moment when it is asked. Logs that are being made or deleted
are not among them, and neither are those that a restore has not opened yet: they can be read later,
and a stream takes them then. A log that is named must be there.

Positions are asked for by linearizable reads, so that nothing that was acknowledged before is
missed, and of many logs at a time.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Final, Self, TypeVar

from logservice_client import SyncLogClient
from logservice_client.lineage import Lineage
from logservice_client.sync import SyncShard
from logservice_wire.errors import LineageChanged
from logservice_wire.v1 import hakeeper_pb2

from pyspark_logservice.archive import Chain, Place
from pyspark_logservice.loss import another_history
from pyspark_logservice.options import ReadOptions
from pyspark_logservice.sizes import Sample, sampler

ASKED_AT_A_TIME: Final = 16
"""Logs whose stores are asked at a time: a thousand are through in a second or so."""

_READABLE: Final = ("", "open", "closed")
"""States of logs that a pattern means; a cluster of version 1 names none."""

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a log stands: what can be read is ``first_lsn <= lsn < next_lsn``."""

    shard: int
    first_lsn: int
    next_lsn: int
    lineage: Lineage
    parent: bytes = b""
    """The id of the lineage that this one continues; b"" where it continues none."""
    readable: bool = True
    """False while it is being restored."""


class Logs:
    """A connection to the cluster on the driver. Close it."""

    def __init__(self, options: ReadOptions) -> None:
        """No I/O yet."""
        self._options = options
        self._timeout_s = options.rpc_timeout_s
        self.client = SyncLogClient(options.endpoints, tls=options.tls(), zone=options.zone)
        self._threads = ThreadPoolExecutor(ASKED_AT_A_TIME, "logservice-asking")
        self._chains: dict[int, Chain] = {}
        self._archive: tuple[Place, str] | None = None

    def named(self) -> tuple[int, ...]:
        """The logs that the options name by an id or a whole name. Raises ShardNotFound."""
        hakeeper = self.client.hakeeper
        names = [name for name in self._options.names if "*" not in name]
        found = [hakeeper.resolve_shard(name, timeout=self._timeout_s).shard_id for name in names]
        return tuple(sorted({*(self._options.shards or ()), *found}))

    def by_pattern(self) -> dict[str, tuple[int, ...]]:
        """The logs that each pattern of the options means now; * is the one for all logs."""
        if self._options.shards is None:
            # A cluster of any version answers that.
            return {"*": _ids(self.client.hakeeper.cluster_state(timeout=self._timeout_s).shards)}
        return {name: self._matching(name) for name in self._options.names if "*" in name}

    def _matching(self, pattern: str) -> tuple[int, ...]:
        prefix = pattern.partition("*")[0]
        listed = self.client.hakeeper.list_shards(name_prefix=prefix, timeout=self._timeout_s)
        return _ids(info for info in listed if _matches(info.name, pattern))

    def standings(self, shards: Iterable[int]) -> dict[int, Standing]:
        """Where they stand now. Raises what a log's store said, ShardDeleted for example."""
        wait_s = self._timeout_s
        found = self.each(lambda shard: standing(self.client.shard(shard), wait_s), shards)
        if self._options.archive:
            found = [self._with_archive(one) for one in found]
        return {one.shard: one for one in found}

    def chain(self, shard: int) -> Chain | None:
        """What the archive of the options has of a log; None without one. Raises OptionError,
        ArchiveError.
        """
        if not self._options.archive:
            return None
        if self._archive is None:
            # Once, not for each log: the answer describes the whole cluster.
            place = Place(self._options.archive)
            cluster_id = self.client.hakeeper.cluster_state(timeout=self._timeout_s).cluster_id
            place.check(cluster_id)
            self._archive = place, cluster_id
        if shard not in self._chains:
            self._chains[shard] = Chain(*self._archive, shard)
        return self._chains[shard]

    def sample(self, shard: int) -> Sample:
        """Samples of a log's sizes."""
        stored = sampler(self.client.shard(shard), self._timeout_s)
        chain = self.chain(shard)
        return stored if chain is None else chain.sample(stored)

    def _with_archive(self, found: Standing) -> Standing:
        """INV-ARCHIVED-1."""
        chain = self.chain(found.shard)
        if chain is None or not found.readable:
            return found
        chain.grow()
        if not chain.end_lsn:
            return found
        if chain.lineage != found.lineage.id:
            raise another_history(
                found.shard,
                chain.lineage.hex(),
                found.lineage.id.hex(),
                found.lineage.number,
                found.lineage.fork_lsn,
            )
        # Where the chain ends below what the stores have, LSNs are in neither.
        begins = chain.first_lsn < found.first_lsn <= chain.end_lsn
        first = chain.first_lsn if begins else found.first_lsn
        return replace(found, first_lsn=first)

    def each(self, ask: Callable[[int], ResultT], shards: Iterable[int]) -> list[ResultT]:
        """What `ask` answers for each of them, several at a time."""
        return list(self._threads.map(ask, shards))

    def addresses(self, shard: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The stores that have a log, its leader first, and those of them that are near."""
        client = self.client
        if not client.replica_addresses(shard):
            client.shard(shard).status(timeout=self._timeout_s)
        every = client.replica_addresses(shard) or tuple(self._options.endpoints.split(","))
        return every, client.near_addresses(shard)

    def close(self) -> None:
        """Calls that wait fail."""
        self._threads.shutdown(cancel_futures=True)
        self.client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def standing(log: SyncShard, timeout_s: float) -> Standing:
    """Where one log stands."""
    try:
        status = log.status(timeout=timeout_s)
    except LineageChanged as error:
        told = error.metadata
        raise another_history(
            log.shard_id,
            told.get("expected", ""),
            told.get("actual", ""),
            error.number("number"),
            error.number("fork_lsn"),
        ) from error
    position = status.position
    restoring = status.HasField("restoring") and not status.restoring.mirror
    lineage = position.lineage
    return Standing(
        log.shard_id,
        position.first_lsn,
        position.applied_lsn + 1,
        Lineage(lineage.number, lineage.id, lineage.fork_lsn) if lineage.number else Lineage(),
        status.lineage_parent,
        readable=not restoring,
    )


def _ids(listed: Iterable[hakeeper_pb2.ShardInfo]) -> tuple[int, ...]:
    found = (info.shard_id for info in listed if info.shard_id > 0 and info.state in _READABLE)
    return tuple(sorted(found))


def _matches(name: str, pattern: str) -> bool:
    """Only * stands for something; ? and [ are letters."""
    letters = pattern.replace("[", "[[]").replace("?", "[?]")
    return fnmatch.fnmatchcase(name, letters)


def turned(addresses: Sequence[str], number: int) -> tuple[str, ...]:
    """The same addresses in their order, beginning with another one for every number."""
    turn = number % len(addresses) if addresses else 0
    return (*addresses[turn:], *addresses[:turn])
