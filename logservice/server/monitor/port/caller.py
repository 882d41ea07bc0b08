"""caller: who sent a request to the admin port, and what that caller may do.

Theory of operation. A request shows who sends it by the certificate of its connection, by a bearer
token, or not at all. The port itself asks only whether a caller has any role over anything, and
only where the configuration says so (`let_in`): what it shows are names and figures of the whole
cluster, which every role needs some of. A part of it that shows more, such as records, asks for the
role that the RPC of the same contents needs (`check`). All of that is decided by the store's gate,
on the event loop, so that one access list, one set of revocations and one audit log hold for both
ports. Who comes here is noted in the same book, too: a scraper of metrics that never calls the
other port uses its grant.

In plaintext everybody is ANONYMOUS and may do everything, as on the client port. With TLS a caller
is an identity, or None: nobody has said who this is.

A loop that is stuck answers no question, and then the metrics are wanted most. So a caller that was
let in within ADMIN_CALLER_REMEMBERED_S is let in once more, but not after what it showed has
expired.

INV-ADMIN-1: what `check` lets through, the gate lets through as that RPC; without an identity it
lets nothing through.
"""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from logservice_wire.errors import NotReady, PermissionDenied, Unauthenticated
from logservice_wire.rpcs import Rpc

from logservice import bounds
from logservice.clock import Clock, SystemClock
from logservice.ids import ShardId
from logservice.server.audit.log import AuditLog
from logservice.server.edge.gate import Caller as KnownCaller
from logservice.server.edge.gate import Gate
from logservice.server.edge.identity_book import NOBODY, IdentityBook
from logservice.server.monitor.port.board import Board, LoopStuck

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

CHAIN: Final = "logservice.chain"
"""Key of the WSGI environment, there under TLS only: the certificates that the caller showed and
TLS verified (PEM)."""

_WHAT: Final = "AdminPort"
"""What the audit log calls a request that was refused."""

_Shown = tuple[bytes, str]
"""Certificates and the authorization header; either may be empty."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody who said who it is. `uri`: the identity, or ANONYMOUS in plaintext."""

    uri: str
    known: KnownCaller


_PASSED_ON: Final = ("HTTP_FORWARDED", "HTTP_VIA", "HTTP_X_FORWARDED_FOR", "HTTP_X_REAL_IP")
"""What proxies put into a request."""


class Callers:
    """One per admin port. Its methods are called in the port's threads and wait for the loop."""

    def __init__(self, board: Board, *, required: bool = False, clock: Clock | None = None) -> None:
        """Nobody is known before `attach`. `required`: only callers with a role are let in."""
        self._board = board
        self._clock = clock or SystemClock()
        self._required = required
        self._gate: Callable[[], Gate | None] = _nothing
        self._audit: Callable[[], AuditLog | None] = _nothing
        self._seen: IdentityBook | None = None
        self._lock = threading.Lock()
        self._lately: dict[_Shown, tuple[float, KnownCaller]] = {}

    def attach(
        self,
        gate: Callable[[], Gate | None],
        audit: Callable[[], AuditLog | None] = lambda: None,
        seen: IdentityBook | None = None,
    ) -> None:
        """Ask the gate that `gate` returns, None as long as the store starts; denials go to the
        audit log, and `seen` hears who comes.
        """
        self._gate, self._audit, self._seen = gate, audit, seen

    def of(self, environ: WSGIEnvironment) -> Caller | None:
        """Who sent the request; None when it shows nothing that says so.

        Raises Unauthenticated or PermissionDenied for what is shown and not accepted, NotReady
        while the store starts, LoopStuck.
        """
        # Who was let in by name has been noted then.
        noted = not self._required
        return self._board.ask(lambda: self._identified(environ, noted=noted, let_in=False))

    def let_in(self, environ: WSGIEnvironment) -> None:
        """Let a request in that is no probe. Raises what `of` and `check` do."""
        if not self._required:
            return
        shown = _shown(environ)
        try:
            caller = self._board.ask(lambda: self._identified(environ, noted=True, let_in=True))
        except LoopStuck:
            if not self._was_let_in(shown):
                raise
            return
        assert caller is not None  # nobody is let in without a name
        with self._lock:
            if len(self._lately) >= bounds.ADMIN_CALLERS_REMEMBERED_MAX:
                self._lately.clear()
            self._lately[shown] = (self._clock.boottime(), caller.known)

    def check(self, caller: Caller | None, rpc: Rpc[Any, Any], shard: ShardId) -> None:
        """Let `caller` see what `rpc` tells about `shard`.

        Raises Unauthenticated for None, and what `Gate.admit` does: PermissionDenied, NotReady.
        Also LoopStuck.
        """
        if caller is None:
            raise Unauthenticated("the request does not say whose it is")

        async def ask() -> None:
            await self._ready().admit(caller.known, rpc, shard)

        self._board.ask(ask)

    async def _identified(
        self, environ: WSGIEnvironment, *, noted: bool, let_in: bool
    ) -> Caller | None:
        """Who sent a request; a refusal leaves its line. `noted`: the book hears that somebody
        came. `let_in`: it must be somebody, with a role over something.
        """
        gate, who, peer = self._ready(), "", peer_of(environ)
        seen = self._seen
        try:
            caller = self._who(gate, _shown(environ))
            if caller is not None:
                who, known = caller.uri, caller.known
                if noted and seen is not None:
                    seen.used(who, peer, known.serial, known.not_after.wall_s)
            if let_in:
                if caller is None:
                    raise Unauthenticated("show a client's certificate or a bearer token")
                gate.admit_with_any_role(caller.known)
        except (Unauthenticated, PermissionDenied) as error:
            if seen is not None:
                seen.denied(who or NOBODY, peer, _WHAT, None, error)
            audit = self._audit()
            if audit is not None:
                origin = f"{environ.get('REMOTE_ADDR', '')}"
                line = {"who": who or "unknown", "from": origin, "what": _WHAT}
                audit.deny({**line, "decision": "denied", "reason": error.reason.value})
            raise
        return caller

    def _ready(self) -> Gate:
        gate = self._gate()
        if gate is None:
            raise NotReady("the store is starting")
        return gate

    @staticmethod
    def _who(gate: Gate, shown: _Shown) -> Caller | None:
        chain, authorization = shown
        tokens = gate.identities is not None and gate.identities.tokens is not None
        if gate.identities is not None and not chain and not (authorization and tokens):
            return None
        known = gate.bearer(chain, (authorization,) if authorization else ())
        return Caller(known.uri, known)

    def _was_let_in(self, shown: _Shown) -> bool:
        with self._lock:
            at_s, known = self._lately.get(shown, (float("-inf"), None))
        return (
            known is not None
            and self._clock.boottime() - at_s < bounds.ADMIN_CALLER_REMEMBERED_S
            and not known.expires.is_over(self._clock)
        )


def _shown(environ: WSGIEnvironment) -> _Shown:
    """A token counts under TLS, or when it has not left this machine."""
    authorization = environ.get("HTTP_AUTHORIZATION", "")
    if CHAIN not in environ and not _is_loopback(environ.get("REMOTE_ADDR", "")):
        authorization = ""
    return environ.get(CHAIN, b""), authorization


def peer_of(environ: WSGIEnvironment) -> str:
    """Where a request came from, for the audit log and the book."""
    return f"admin:{environ.get('REMOTE_ADDR', '')}:{environ.get('REMOTE_PORT', '')}"


def names_loopback(host: str) -> bool:
    """Whether a Host header names a loopback host: ``localhost:7601``, ``127.0.0.1:7601`` or
    ``[::1]:7601``.
    """
    name = host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.split(":")[0]
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def from_this_machine(environ: WSGIEnvironment) -> bool:
    """Whether a request comes from this machine and was meant for it: from a loopback address, to a
    loopback name, which a page of another origin that was bound to this address does not have, and
    passed on by nobody, since a proxy of this machine speaks for others.
    """
    passed_on = any(name in environ for name in _PASSED_ON)
    here = _is_loopback(environ.get("REMOTE_ADDR", ""))
    return here and not passed_on and names_loopback(environ.get("HTTP_HOST", ""))


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _nothing() -> None:
    return None
