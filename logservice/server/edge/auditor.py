"""auditor: what the audit log says about a call.

Theory of operation. `guard` and `guarded_stream` tell the `Auditor` what becomes of a call; this
file alone decides the fields of its line. Without an audit log (in plaintext nobody has an
identity) it says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from logservice_wire.errors import LogServiceError, Reason
from logservice_wire.rpcs import Rpc

from logservice import trace
from logservice.ids import ShardId
from logservice.server.audit.log import AuditLog
from logservice.server.edge.call import Context
from logservice.server.edge.gate import DIRECTORY, Caller
from logservice.server.edge.identity_book import NOBODY, IdentityBook

_REQUEST_CHARACTERS: Final = 1024
"""How much of the text of an administrative request a line of the audit log holds."""

_DENIALS: Final = frozenset({Reason.UNAUTHENTICATED, Reason.PERMISSION_DENIED})


class Auditor:
    """Puts calls into the words of the audit log; without a log it says nothing."""

    def __init__(self, log: AuditLog | None, seen: IdentityBook | None = None) -> None:
        """`log` None: there are no identities to speak of. `seen`: hears of denials, too."""
        self._log = log
        self._seen = seen

    @property
    def data(self) -> bool:
        """Whether calls on data are written, too."""
        return self._log is not None and self._log.data

    async def admitted(
        self, rpc: Rpc[Any, Any], context: Context, caller: Caller, shard: ShardId, request: Any
    ) -> None:
        """An administrative call is about to run. Raises NotReady when it must not run."""
        if self._log is not None:
            line = self._line(rpc, context, caller, shard)
            await self._log.admit({**line, "decision": "allowed", "request": _told(request)})

    def ended(
        self,
        rpc: Rpc[Any, Any],
        context: Context,
        caller: Caller,
        shard: ShardId,
        request: Any,
        response: Any,
    ) -> None:
        """A call has ended, with an answer or without one."""
        if self._log is not None:
            line = self._line(rpc, context, caller, shard)
            code = context.code()
            outcome = "ok" if response is not None else getattr(code, "name", str(code))
            lsns = lsn_range(request, response)
            line |= {"decision": "allowed", "outcome": outcome, **lsns}
            self._log.record(line, admin=rpc.admin)

    def streamed(
        self,
        rpc: Rpc[Any, Any],
        context: Context,
        caller: Caller,
        shard: ShardId,
        lsns: Mapping[str, object],
    ) -> None:
        """A stream has ended; `lsns`: the LSNs that it was about."""
        if self._log is not None:
            line = self._line(rpc, context, caller, shard)
            self._log.record({**line, "decision": "allowed", "outcome": "ended", **lsns})

    def denied(
        self,
        rpc: Rpc[Any, Any],
        context: Context,
        caller: Caller | None,
        shard: ShardId | None,
        error: LogServiceError,
    ) -> None:
        """A call was not let in. A call that is over a limit is not denied, and leaves no line."""
        undecided = DIRECTORY in error.metadata
        if self._seen is not None and error.reason in _DENIALS:
            who = caller.uri if caller is not None else NOBODY
            self._seen.denied(who, context.peer(), rpc.name, shard, error)
        if self._log is not None and (error.reason in _DENIALS or undecided):
            line = self._line(rpc, context, caller, shard)
            decision = "undecided" if undecided else "denied"
            by = {"by": error.metadata["by"]} if "by" in error.metadata else {}
            self._log.deny({**line, "decision": decision, "reason": error.reason.value, **by})

    @staticmethod
    def _line(
        rpc: Rpc[Any, Any], context: Context, caller: Caller | None, shard: ShardId | None
    ) -> dict[str, object]:
        line: dict[str, object] = {
            "who": caller.uri if caller is not None else "unknown",
            "from": context.peer(),
            "what": rpc.name,
            **trace.trace_ids(),
        }
        if shard is not None:
            line["shard"] = int(shard)
        return line


def _told(request: Any) -> str:
    """An administrative request as text; none of them carries a secret or a record."""
    return str(request).replace("\n", " ").strip()[:_REQUEST_CHARACTERS]


def lsn_range(request: Any, response: Any) -> dict[str, object]:
    """The LSNs a call on data was about, by the names that the proto gives them; may be empty."""
    first = getattr(response, "lsn", 0)
    if first:
        return {"first_lsn": first, "last_lsn": first + response.record_count - 1}
    asked = getattr(request, "lsn", 0)
    following = getattr(response, "next_lsn", 0)
    if asked and following:
        return {"first_lsn": asked, "last_lsn": following - 1}
    return {"last_lsn": asked} if asked else {}


def stream_range(line: Mapping[str, object], message: Any) -> dict[str, object]:
    """`line` with the LSNs that one message of a stream adds: acks, or blocks that were read."""
    acks = getattr(message, "acks", None)
    if acks:
        first, last = acks[0].lsn, acks[-1].lsn + acks[-1].record_count - 1
    elif getattr(message, "blocks", None) is not None and message.blocks:
        first, last = message.blocks[0].first_lsn, message.next_lsn - 1
    else:
        return dict(line)
    return {**line, "first_lsn": line.get("first_lsn", first), "last_lsn": last}
