"""digesting: the digest of a range of a log, of any size, in calls of bounded time.

A store answers after a second at the latest; the next call goes on from its answer, at whatever
replica can serve it. `logservice_wire.digest` says why that gives the same digest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from logservice_wire.digest import digest_text
from logservice_wire.errors import InvalidArgument
from logservice_wire.rpcs import DIGEST
from logservice_wire.v1 import log_pb2

from logservice_client.bounds import TIMEOUT_DEFAULT_S
from logservice_client.caller import Caller
from logservice_client.lineage import LINEAGE_BYTES

Progress = Callable[[int], None]
"""Called with the LSN up to which the range is digested."""


@dataclass(frozen=True, slots=True)
class RangeDigest:
    """The digest of the LSNs ``from_lsn <= lsn < to_lsn``, and what they are."""

    from_lsn: int
    to_lsn: int
    digest: bytes
    records: int
    gap_lsns: int
    value_bytes: int

    def __str__(self) -> str:
        """As it is shown and kept: what it covers, the version of the definition, the bytes."""
        return digest_text(self.digest)


async def digest_of(
    caller: Caller,
    request: log_pb2.DigestRequest,
    *,
    address: str = "",
    progress: Progress | None = None,
    patience: float = TIMEOUT_DEFAULT_S,
) -> RangeDigest:
    """See `Shard.digest`."""
    from_lsn, to_lsn = request.from_lsn, request.to_lsn
    if not 1 <= from_lsn < to_lsn:
        raise InvalidArgument(f"no LSNs from {from_lsn} to before {to_lsn}", field="to_lsn")
    records = gap_lsns = value_bytes = 0
    while True:
        answer = await caller.call(request.shard_id, DIGEST, request, patience, address=address)
        if answer.digest:
            counts = (records + answer.records, gap_lsns + answer.gap_lsns)
            return RangeDigest(
                from_lsn, to_lsn, answer.digest, *counts, value_bytes + answer.value_bytes
            )
        request.at_lsn, request.chain = answer.at_lsn, answer.chain
        # Whoever goes on continues the same history, also on behalf of a handle that knew of none.
        request.lineage = request.lineage or answer.position.lineage.id or bytes(LINEAGE_BYTES)
        records += answer.records
        gap_lsns += answer.gap_lsns
        value_bytes += answer.value_bytes
        if progress is not None:
            progress(answer.at_lsn)
