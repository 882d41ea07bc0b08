"""Holds: what a query has not read yet stays, for as long as a reader may ask for that.

Theory of operation. With the option `hold` the driver sets a hold of that name in every log that it
reads: a batch query where its range begins, when it is planned; a streaming query where its offset
is, and further up each time that Spark asks for the next micro-batch, because what lies below that
offset is in micro-batches that are done. So a query that is started again within the hold's time
finds everything from its checkpoint on.

Nobody releases it. It expires `holdTime` seconds after it was last set, also if the query is
killed; and it lapses when it keeps too much (`logservice_wire.reader_hold`). What is gone then is
told like any loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from logservice_wire.boottime import boottime_s
from logservice_wire.errors import HoldRefused
from logservice_wire.reader_hold import PREFIX

from pyspark_logservice.logs import Logs
from pyspark_logservice.options import ReadOptions

MOVE_S: Final = 1.0
"""Between two moves of a hold: each is an entry of the log."""

RENEWALS_PER_TIME: Final = 3
"""A hold that does not move is set anew so often in its time."""


class Holds:
    """The holds of one query. Without the option `hold` it does nothing."""

    def __init__(self, options: ReadOptions) -> None:
        """Nothing is held yet."""
        self._name = PREFIX + options.hold
        self._wanted = bool(options.hold)
        self._ttl_s = options.hold_s
        self._timeout_s = options.rpc_timeout_s
        self._set: dict[int, tuple[int, float]] = {}

    def keep(self, logs: Logs, lsns: Mapping[int, int]) -> dict[int, int]:
        """Keep each log's records from its LSN on; of the logs where some of them are truncated
        already, the oldest that is left. From there on they are kept.
        """
        if not self._wanted:
            return {}
        now_s = boottime_s()
        due = sorted(shard for shard, lsn in lsns.items() if self._due(shard, lsn, now_s))
        stand = logs.each(lambda shard: self._hold(logs, shard, lsns[shard]), due)
        found = dict(zip(due, stand, strict=True))
        self._set |= {shard: (lsn, now_s) for shard, lsn in found.items()}
        return {shard: lsn for shard, lsn in found.items() if lsn > lsns[shard]}

    def _due(self, shard: int, lsn: int, now_s: float) -> bool:
        known = self._set.get(shard)
        if known is None:
            return True
        passed_s = now_s - known[1]
        moves = lsn > known[0] and passed_s >= MOVE_S
        return moves or passed_s >= self._ttl_s / RENEWALS_PER_TIME

    def _hold(self, logs: Logs, shard: int, lsn: int) -> int:
        """Where the hold stands."""
        log = logs.client.shard(shard)
        while True:
            try:
                log.set_hold(self._name, lsn, ttl=self._ttl_s, timeout=self._timeout_s)
            except HoldRefused as error:
                # It gets further each time: truncation only grows.
                lsn = max(lsn + 1, error.number("first_lsn"))
            else:
                return lsn
