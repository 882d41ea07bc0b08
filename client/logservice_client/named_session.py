"""NamedSession: blocks of a job whose processes come and go, each appended at most once.

Theory of operation. The log keeps the session under its name (proto, OpenSession). An epoch is one
piece of work that is done again as a whole; its blocks are numbered from 1, and `appended` of them
are in the log. Whoever does the work again opens the same epoch with the same content, and goes on
behind them. So do two that work at the same time: what the other one has appended meanwhile is a
duplicate, or, when it is further ahead than the log remembers block by block, is learned by opening
again. That is safe because the same content means the same blocks, which the log has checked.

A store that leads no more, and does not know yet, has not heard of a session that was opened with
its successor, and says SESSION_EXPIRED. Opening is an entry of the log, so whoever answers that
leads. When the answer says that the refused block is the next one, it is sent again, once.

INV-NAMED-SESSION: block k of an epoch is only ever sent under the sequence of k, and only in the
session of the name: a store of before cluster version 2 does not know names, and opens a session
without one, which would take the block again from whoever comes next.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from logservice_wire.errors import NotReady, SessionExpired, UnknownOutcome
from logservice_wire.rpcs import APPEND, OPEN_SESSION
from logservice_wire.v1 import log_pb2

from logservice_client.caller import Caller
from logservice_client.lineage import KnownLineage

_EPOCH_BITS: Final = 32
"""The proto's: the sequence of block k is ``epoch << 32 | k``."""

_BLOCKS_MAX: Final = 2**_EPOCH_BITS - 1
"""Blocks that an epoch can have."""

_NEEDED: Final = 2
"""The cluster version that begins with names of sessions, and much else."""

_APPEND: Final = replace(APPEND, idempotent=True)
"""With a session and a sequence the same request may be sent again."""


def too_early(what: str) -> NotReady:
    """The error for what a store did not know, and therefore ignored."""
    return NotReady(
        f"{what} need cluster version {_NEEDED}: upgrade every store, then `logctl upgrade raise`",
        needed=_NEEDED,
    )


class NamedSession:
    """Get it from `Shard.named_session`."""

    def __init__(
        self,
        caller: Caller,
        history: KnownLineage,
        request: log_pb2.OpenSessionRequest,
        writer_epoch: Callable[[], int],
    ) -> None:
        """Nothing is asked yet. `request`: what to open. `writer_epoch`: of the handle."""
        self._caller = caller
        self._history = history
        self._request = request
        self._writer_epoch = writer_epoch
        self._session_id = 0
        self._nonce = b""
        self.appended = 0
        """Blocks of the epoch that are known to be in the log."""
        self.stamp_us = 0
        """The time that the first to open the epoch gave it, microseconds since 1970."""

    async def open(self, timeout: float | None = None) -> None:
        """Open it, or look how far the epoch has come.

        Raises SequenceReused when the epoch was opened with another content, SessionExpired when a
        later one was, when it was forgotten, or when the log was continued by force since the name
        is known, TooLarge when there is no room for another name, NotReady when the cluster does
        not know names.
        """
        request = self._request
        request.lineage = self._history.named
        answer = await self._caller.call(request.shard_id, OPEN_SESSION, request, timeout)
        self._history.heard(answer.position)
        if not answer.named:
            raise too_early("named sessions")
        if answer.appended > _BLOCKS_MAX:
            raise UnknownOutcome(f"an answer that says {answer.appended} blocks of one epoch")
        self._session_id, self._nonce = answer.session_id, answer.nonce
        self.appended, self.stamp_us = answer.appended, answer.stamp_us

    async def append(self, block: bytes, *, timeout: float | None = None) -> None:
        """Append the block with number `appended` + 1. Afterwards `appended` is greater, by more
        than one when another process of the job is ahead.

        After an error with outcome UNKNOWN the same block may be appended again here, or by whoever
        opens the session next.
        """
        self._history.check()
        before = self.appended
        try:
            await self._send(block, timeout)
        except SessionExpired:
            await self.open(timeout)
            if self.appended == before:
                await self._send(block, timeout)

    async def _send(self, block: bytes, timeout: float | None) -> None:
        request = log_pb2.AppendRequest(
            shard_id=self._request.shard_id,
            block=block,
            writer_epoch=self._writer_epoch(),
            session_id=self._session_id,
            session_nonce=self._nonce,
            sequence=self._request.epoch << _EPOCH_BITS | (self.appended + 1),
            lineage=self._history.named,
        )
        await self._caller.call(request.shard_id, _APPEND, request, timeout)
        self.appended += 1

    def __repr__(self) -> str:
        request = self._request
        return f"<NamedSession {request.name!r} of log {request.shard_id}, epoch {request.epoch}>"
