"""The load on the logs of the story: one writer, whose every record is known.

It waits for each answer. What it gets an error for may be in the log or not, so what a log has is
read from the log; what was acked has to be there, under its LSN.
"""

from __future__ import annotations

import random
import threading
from typing import Final

from logservice_client import SyncLogClient
from logservice_wire.errors import LogServiceError, Outcome

from tests.endurance.load import record_of

APPEND_LIMIT_S: Final = 120.0
RECORDS_MAX: Final = 30
PAUSE_S: Final = 0.25


class Load:
    """`acked`: by shard, records by LSN."""

    def __init__(self, endpoints: list[str], shards: dict[str, int], seed: int) -> None:
        """Nothing is written yet."""
        self.acked: dict[int, dict[int, bytes]] = {shard: {} for shard in shards.values()}
        self.unknown = 0
        self.failed: BaseException | None = None
        self._endpoints, self._shards = endpoints, shards
        self._chance = random.Random(f"{seed}/load")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")

    def begin(self) -> None:
        """Write, until `end`."""
        self._thread.start()

    def end(self) -> None:
        """The last append is answered when this returns. Raises what ended the writer."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self.failed is not None:
            raise self.failed

    def _run(self) -> None:
        numbers = dict.fromkeys(self._shards, 0)
        try:
            with SyncLogClient(self._endpoints) as client:
                while not self._over.wait(PAUSE_S):
                    name = self._chance.choice(list(self._shards))
                    count, first = self._chance.randint(1, RECORDS_MAX), numbers[name]
                    records = [record_of(name, first + number) for number in range(count)]
                    numbers[name] = first + count
                    self._append(client, self._shards[name], records)
        except BaseException as error:  # noqa: BLE001 - `end` raises it
            self.failed = error

    def _append(self, client: SyncLogClient, shard: int, records: list[bytes]) -> None:
        try:
            lsn = client.shard(shard).append(records, timeout=APPEND_LIMIT_S)
        except LogServiceError as error:
            self.unknown += error.outcome is Outcome.UNKNOWN
            return
        for number, record in enumerate(records):
            self.acked[shard][lsn + number] = record
