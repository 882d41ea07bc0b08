"""AppendRequest: one block on its way to a shard's log, as the edge hands it to the NodeHost.

The same numbers and the same claim travel in the block's envelope (`logservice.envelope`) and are
judged twice with the same rules: by the leader before it gives the block an LSN (`rsm.admission`)
and by every replica when the entry is applied (`rsm.log_rsm`). `block` is opaque and was checked by
the edge.
"""

from __future__ import annotations

from logservice_wire.value import value

from logservice.ids import Lsn, SessionId
from logservice.owner import Claim


@value
class AppendRequest:
    """Append `block` with its `record_count` records.

    session, sequence: (0, 0) for none; else sequence counts from 1 without gaps, and a retry with
    the same pair is applied at most once. writer_epoch: 0 for none. expected_lsn: 0 for none; else
    the first record must land exactly there. claim: whose it is, and the nonce of the session.
    restored: it is of a restore (`rsm.restoring`). append_time_us: that of its source; 0: none.
    """

    session: SessionId
    sequence: int
    writer_epoch: int
    expected_lsn: Lsn
    record_count: int
    block: bytes
    claim: Claim
    restored: bool = False
    append_time_us: int = 0
