"""handshake: why a client and a store do not come to a connection, as far as TLS is the reason.

Theory of operation. gRPC says that an address does not connect, and not why. So before the client
was ever connected, and now and then later, the store is asked once more with the standard library's
TLS, which says what it dislikes. Nothing is sent on such a connection but the handshake. What is
found is said to the user and decides nothing else, except that a client which was never connected
does not wait for what no time mends (HandshakeFailed).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Final

from logservice_client.bounds import HANDSHAKE_ALERT_S, HANDSHAKE_TIMEOUT_S
from logservice_client.tls import Tls, load_pair

_WRONG_NAME: Final = frozenset({62, 64})
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""

_NOT_TRUSTED: Final = frozenset({2, 18, 19, 20, 21})
"""The issuer is not known, or a certificate vouches for itself."""

_NOT_NOW: Final = frozenset({9, 10})
"""Not valid yet, or not any more."""


UNRESOLVED: Final = "its host name does not resolve"
"""What is wrong is no matter of TLS, and may pass."""


async def cause(address: str, tls: Tls | None) -> str:
    """What is wrong between this client and the store; "" when it is not TLS, or cannot be told."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
            if tls is None:
                return await _with_none(host, int(port))
            return await _with(host, int(port), tls)
    except socket.gaierror:
        return UNRESOLVED
    except (OSError, TimeoutError, ValueError):
        return ""


async def _with_none(host: str, port: int) -> str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    _, writer = await asyncio.open_connection(host, port, ssl=context)
    writer.transport.abort()
    return "the store speaks TLS, and this client has no certificates"


async def _with(host: str, port: int, tls: Tls) -> str:
    name = tls.server_name or host
    try:
        context = ssl.create_default_context(cadata=tls.ca.decode() if tls.ca else None)
    except (ssl.SSLError, ValueError):
        return "what this client trusts is no certificate of an authority"
    # From Python 3.13 on it is set, and finds fault with certificates that gRPC takes.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.set_alpn_protocols(["h2"])
    if tls.certificate is not None and tls.key is not None:
        load_pair(context, tls.certificate, tls.key)
    try:
        reader, writer = await asyncio.open_connection(
            host, port, ssl=context, server_hostname=name
        )
    except ssl.SSLCertVerificationError as error:
        return _of_the_store(error, name)
    except ssl.SSLError as error:
        return _of_the_handshake(error)
    try:
        # A store that dislikes the client's certificate says so after the handshake of TLS 1.3, or
        # ends the connection. One that is content begins with HTTP/2's SETTINGS.
        async with asyncio.timeout(HANDSHAKE_ALERT_S):
            if await reader.read(1):
                return ""
    except ssl.SSLError as error:
        return _of_the_client(error, tls)
    finally:
        writer.transport.abort()
    # A store that is ending does the same. In TLS 1.2 the certificate is a part of the handshake,
    # and one that is ending does not even begin it.
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    try:
        _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=name)
    except (ssl.SSLError, ConnectionResetError) as error:
        return _of_the_client(error, tls)
    writer.transport.abort()
    return ""


def _of_the_store(error: ssl.SSLCertVerificationError, name: str) -> str:
    if error.verify_code in _WRONG_NAME:
        return f"the store's certificate is not for {name}"
    if error.verify_code in _NOT_TRUSTED:
        return "the store's certificate is signed by no authority that this client trusts"
    if error.verify_code in _NOT_NOW:
        return "the store's certificate is not valid now"
    return f"the store's certificate: {error.verify_message}"


def _of_the_handshake(error: ssl.SSLError) -> str:
    reason = error.reason or ""
    if "WRONG_VERSION_NUMBER" in reason or "RECORD_LAYER" in reason:
        return "the store does not speak TLS"
    return f"the handshake failed: {reason.lower().replace('_', ' ')}" if reason else ""


def _of_the_client(error: ssl.SSLError | ConnectionResetError, tls: Tls) -> str:
    if tls.certificate is None:
        if tls.token is not None:
            return "the store asks for a certificate; clients with a token go to another port"
        return "the store asks for a certificate, and this client has none"
    reason = (getattr(error, "reason", None) or "it ends the connection").lower()
    return f"the store refuses this client's certificate: {reason.replace('_', ' ')}"
