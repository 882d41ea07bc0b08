"""Fetching: one task's LSN range from the stores, answer by answer, with synchronous gRPC.

Runs in Spark's Python workers, which are forked and reused: channels are kept per process and
address, never made before a fork. The next answer is asked for before the last one is handed on, so
the store works while Spark does.

A read changes nothing, so any failure that is not about the range itself may be tried at the next
replica; the task gives up when nothing has come for `rpc_timeout_s`.
"""

from __future__ import annotations

import os
import random
import time
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, Final

import grpc
from logservice_client.bounds import BACKOFF_FIRST_S
from logservice_client.channels import CHANNEL_OPTIONS
from logservice_client.failure import error_of, may_repeat
from logservice_client.tls import Tls, TlsFiles
from logservice_wire.errors import LogServiceError, NotReady, Truncated
from logservice_wire.freed_memory import keep_freed_memory
from logservice_wire.read_answer import ReadAnswer
from logservice_wire.rpcs import READ, serialize
from logservice_wire.v1 import log_pb2

from pyspark_logservice.loss import check_loss
from pyspark_logservice.options import ReadOptions
from pyspark_logservice.plan import LsnRange

ATTEMPT_TIMEOUT_S: Final = 10.0
"""Deadline of one answer: a few megabytes, even from a busy store."""

SINGLE_BYTES: Final = 64 * 1024
"""Bytes asked for at a time where single LSNs are wanted: what lies between them is not."""

BACKOFF_MAX_S: Final = 0.5
"""Pause between attempts once every replica has failed."""

_channels: dict[tuple[int, str], tuple[Tls | None, grpc.Channel]] = {}
_tls: dict[tuple[str, ...], TlsFiles | None] = {}


class RangeFetcher:
    """Iterates over the answers that cover one range."""

    def __init__(self, options: ReadOptions, piece: LsnRange) -> None:
        """Nothing is sent before `answers`."""
        keep_freed_memory()
        self._options = options
        self._piece = piece
        others = (address.strip() for address in options.endpoints.split(","))
        self._addresses = list(dict.fromkeys((*piece.addresses, *others)))
        most = SINGLE_BYTES if piece.only else options.bytes_per_read
        self._bytes_per_read = min(most, options.bytes_per_read)
        self._failures = 0
        self._pause_s = BACKOFF_FIRST_S

    def answers(self) -> Iterator[tuple[int, ReadAnswer]]:
        """Pairs of the LSN asked for and the answer, in order, until the range is covered. Raises
        Truncated if there is an archive, DataLossError if there is none.
        """
        lsn = self._piece.start
        pending = self._ask(lsn)
        while True:
            try:
                response = self._answer(pending, lsn)
            except Truncated as error:
                if self._options.archive:
                    raise  # the archive has it by now, or nobody
                first_lsn, end = error.number("first_lsn"), self._piece.end
                check_loss(self._options, self._piece.shard, lsn, first_lsn, end)
                lsn = self._wanted_from(min(first_lsn, end))
                if lsn >= self._piece.end:
                    return
                pending = self._ask(lsn)
                continue
            asked, lsn = lsn, self._wanted_from(response.next_lsn)
            if lsn < self._piece.end:
                pending = self._ask(lsn)
                yield asked, response
            else:
                yield asked, response
                return

    def _wanted_from(self, lsn: int) -> int:
        """The next LSN to ask for; the piece's end, or what lies behind it, when there is none."""
        only = self._piece.only
        if not only:
            return lsn
        at = bisect_left(only, lsn)
        return only[at] if at < len(only) else self._piece.end

    def _ask(self, lsn: int) -> Any:
        address = self._addresses[self._failures % len(self._addresses)]
        call: Any = _channel(self._options, address).unary_unary(
            READ.path, request_serializer=serialize, response_deserializer=READ.parse_response
        )
        request = log_pb2.ReadRequest(
            shard_id=self._piece.shard,
            lsn=lsn,
            max_bytes=self._bytes_per_read,
            no_values="value" not in self._options.columns,
            lineage=self._piece.lineage,
        )
        return call.future(request, timeout=ATTEMPT_TIMEOUT_S)

    def _answer(self, pending: Any, lsn: int) -> ReadAnswer:
        give_up_at_s = time.monotonic() + self._options.rpc_timeout_s
        while True:
            try:
                response: ReadAnswer = pending.result()
                if response.next_lsn <= lsn:
                    raise NotReady(f"a replica does not have LSN {lsn} yet")
            except grpc.RpcError as failure:
                error = error_of(failure, mutating=False)
            except NotReady as not_yet:
                error = not_yet
            else:
                self._pause_s = BACKOFF_FIRST_S
                return response
            self._pause_or_raise(error, give_up_at_s)
            pending = self._ask(lsn)

    def _pause_or_raise(self, error: LogServiceError, give_up_at_s: float) -> None:
        if not may_repeat(error, mutating=False, idempotent=True):
            raise error
        self._failures += 1
        if self._failures % len(self._addresses) == 0:
            if time.monotonic() + self._pause_s > give_up_at_s:
                raise error
            time.sleep(self._pause_s * random.uniform(0.5, 1.0))
            self._pause_s = min(self._pause_s * 2, BACKOFF_MAX_S)


def _channel(options: ReadOptions, address: str) -> grpc.Channel:
    """The process's channel to `address`; a new one when the certificates have changed."""
    files = options.files()
    if files not in _tls:
        _tls[files] = options.tls()
    source = _tls[files]
    tls = source.current() if source is not None else None
    key = (os.getpid(), address)
    found = _channels.get(key)
    if found is None or found[0] != tls:
        if found is not None:
            # The other side would soon refuse the old channel; calls on it are answered or asked
            # again.
            found[1].close()
        channel = (
            grpc.insecure_channel(address, CHANNEL_OPTIONS)
            if tls is None
            else grpc.secure_channel(address, tls.credentials(), CHANNEL_OPTIONS + tls.options())
        )
        found = _channels[key] = (tls, channel)
    return found[1]
