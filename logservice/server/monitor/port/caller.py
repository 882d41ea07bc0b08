"""caller: who sent a request to the admin port, and what that caller may do.

Theory of operation. The port itself asks only whether a caller has any role at all. A part of it
that shows more than names and figures asks for the role that the RPC of the same contents needs
(`check`). Both questions are answered by the store's gate, on the event loop, so that one access
list, one set of revocations and one audit log hold for both ports.

In plaintext everybody is ANONYMOUS and may do everything, as on the client port. With TLS a caller
is an identity, or None: nobody has said who this is.

INV-ADMIN-1: what `check` lets through, the gate lets through as that RPC; without an identity it
lets nothing through.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from logservice_wire.errors import NotReady, Unauthenticated
from logservice_wire.rpcs import Rpc

from logservice.ids import ShardId
from logservice.server.edge.gate import Caller as KnownCaller
from logservice.server.edge.gate import Gate
from logservice.server.monitor.port.board import Board

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

CHAIN: Final = "logservice.chain"
"""Key of the WSGI environment: the certificates that the caller showed and TLS verified (PEM)."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody who said who it is. `uri`: the identity, or ANONYMOUS in plaintext."""

    uri: str
    known: KnownCaller


class Callers:
    """One per admin port. Its methods are called in the port's threads and wait for the loop."""

    def __init__(self, board: Board) -> None:
        """Nobody is known before `attach`."""
        self._board = board
        self._gate: Callable[[], Gate | None] = _no_gate

    def attach(self, gate: Callable[[], Gate | None]) -> None:
        """Ask the gate that `gate` returns; None as long as the store starts."""
        self._gate = gate

    def of(self, environ: WSGIEnvironment) -> Caller | None:
        """Who sent the request; None when it shows nothing that says so.

        Raises Unauthenticated or PermissionDenied for what is shown and not accepted, NotReady
        while the store starts, LoopStuck.
        """
        chain: bytes = environ.get(CHAIN, b"")

        async def ask() -> Caller | None:
            gate = self._ready()
            if gate.identities is not None and not chain:
                return None
            known = gate.bearer(chain)
            return Caller(known.uri, known)

        return self._board.ask(ask)

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

    def _ready(self) -> Gate:
        gate = self._gate()
        if gate is None:
            raise NotReady("the store is starting")
        return gate


def _no_gate() -> None:
    return None
