"""Login: what we answer while a server asks who we are, and when we believe that it is the server.

A password is used for SCRAM and nothing else. With ``sslmode=require`` nobody has looked at the
server's certificate; then the exchange has to be bound to it (`scram`), for anybody in the middle
could pass an unbound one on to the server, and stay there. Who has a password does not speak to a
server that did not show that it knows it. So whoever sits in the middle gains nothing by asking for
less.
"""

from __future__ import annotations

from examples.postgres import protocol, tls
from examples.postgres.address import Address
from examples.postgres.protocol import AuthenticationRefused, ProtocolError
from examples.postgres.scram import SCRAM, SCRAM_PLUS, Exchange, ScramError
from examples.postgres.tls import Mode


class Login:
    """One connection's. `certificate`: the server's (DER), when there is TLS."""

    def __init__(self, address: Address, certificate: bytes | None) -> None:
        self._address = address
        self._tls = certificate is not None
        self._binding = None if certificate is None else tls.end_point(certificate)
        self._exchange: Exchange | None = None
        self._proven = False
        self._accepted = False

    def answer(self, request: bytes) -> bytes:
        """What to send for the body of an authentication request; nothing for some. Raises
        AuthenticationRefused, ProtocolError.
        """
        code, body = protocol.authentication(request)
        try:
            if code == protocol.SASL and self._exchange is None:
                self._exchange = exchange = self._begin(protocol.mechanisms(body))
                return protocol.sasl_begin(exchange.mechanism, exchange.first())
            if code == protocol.SASL_CONTINUE and self._exchange is not None:
                return protocol.sasl_answer(self._exchange.answer(body))
            if code == protocol.SASL_FINAL and self._exchange is not None:
                self._exchange.finish(body)
                self._proven = True
                return b""
        except ScramError as error:
            raise AuthenticationRefused(str(error)) from error
        if code != protocol.AUTHENTICATED:
            raise ProtocolError(f"a request for authentication, {code}, that has no place here")
        if self._address.password and not self._proven:
            raise AuthenticationRefused(
                "the server does not ask for the password, so it did not show that it knows it;"
                " without one it could be spoken to"
            )
        self._accepted = True
        return b""

    def check(self) -> None:
        """Before the server is believed. Raises ProtocolError."""
        if not self._accepted:
            raise ProtocolError("the server takes commands before it took us")

    def _begin(self, offered: list[str]) -> Exchange:
        """SCRAM as it has to be on this connection. Raises AuthenticationRefused."""
        if not self._address.password:
            raise AuthenticationRefused("the server asks for a password, and there is none")
        made = Exchange(self._address.password, binding=self._binding, plus=SCRAM_PLUS in offered)
        if made.mechanism not in offered:
            raise AuthenticationRefused(f"the server asks for SASL by {offered}, not by {SCRAM}")
        if self._tls and self._address.mode is Mode.REQUIRE and made.mechanism != SCRAM_PLUS:
            raise AuthenticationRefused(
                f"sslmode=require with a password needs {SCRAM_PLUS}; the server offers {offered},"
                f" and its certificate {'can' if self._binding else 'cannot'} be bound to it."
                " Use verify-full"
            )
        return made
