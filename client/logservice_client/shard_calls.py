"""ShardCalls: every call about one log is made in the lineage that its handle knows (`lineage`)."""

from __future__ import annotations

from typing import Any, Final

from logservice_wire.errors import LineageChanged
from logservice_wire.rpcs import (
    ACQUIRE_WRITER,
    FORGET_SESSION,
    LSN_AT_TIME,
    READ,
    RENEW_HOLD,
    SET_HOLD,
    TRUNCATE,
    RequestT,
    ResponseT,
    Rpc,
    serialize,
)

from logservice_client.arguments import seconds
from logservice_client.caller import Caller
from logservice_client.lineage import KnownLineage, Lineage
from logservice_client.sharing import Sharing

NAMING: Final[frozenset[Rpc[Any, Any]]] = frozenset(
    {READ, LSN_AT_TIME, TRUNCATE, ACQUIRE_WRITER, SET_HOLD, RENEW_HOLD, FORGET_SESSION}
)
"""Calls whose request names the lineage; appends do, too (`Appender`)."""


class ShardCalls:
    """A part of `Shard`: the handle's id, writer epoch and lineage, and how it calls."""

    def __init__(self, caller: Caller, shard_id: int) -> None:
        """Nothing was heard yet, and appends carry no epoch."""
        self.shard_id = shard_id
        self.writer_epoch = 0
        self._caller = caller
        self._history = KnownLineage(shard_id)
        self._sharing = Sharing(caller.life)

    @property
    def lineage(self) -> Lineage | None:
        """Which history of the log this handle has seen; None before the first answer."""
        return self._history.lineage

    def accept_lineage(self) -> Lineage | None:
        """Go on after LineageChanged: the log was continued by force, as another history.

        What was acked above the `fork_lsn` of the answer is lost, and those LSNs are given out once
        more. So first forget what the program derived from them. The handle has no writer epoch
        afterwards; the old one is fenced.
        """
        if self._history.changed is not None:
            self.writer_epoch = 0
        return self._history.accept()

    async def _call(
        self,
        rpc: Rpc[RequestT, ResponseT],
        request: RequestT,
        timeout_s: float | None,
        *,
        stale: bool = False,
    ) -> ResponseT:
        """Call `rpc` in the lineage that this handle knows."""
        history = self._history
        history.check()
        if rpc in NAMING:
            request.lineage = history.named  # type: ignore[attr-defined]
        try:
            response = await self._caller.call(self.shard_id, rpc, request, timeout_s)
        except LineageChanged as error:
            history.refused(error)
            raise
        if not stale:
            history.heard(response.position)  # type: ignore[attr-defined]
        if not rpc.mutates:
            history.check()
        return response

    async def _question(
        self, rpc: Rpc[RequestT, ResponseT], request: RequestT, timeout_s: float | None
    ) -> ResponseT:
        """`_call`, linearizable, of something that changes nothing: see `sharing`."""
        self._history.check()
        asked = rpc.path.encode() + serialize(request)
        answer: ResponseT = await self._sharing.ask(
            asked, seconds(timeout_s), lambda within_s: self._call(rpc, request, within_s)
        )
        self._history.check()
        return answer
