"""Tls: what a client shows to the stores (a certificate, a token) and the authorities it trusts, as
bytes or as files that are read again when they change.

gRPC reads credentials once per channel, so new certificates need new channels: `TlsFiles` says when
its files have changed, and the pool then begins new channels and lets the old ones end
(`channels`). A set that cannot be read, or whose certificate and key do not belong together, is not
taken; the client goes on with what it has and looks again.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field

import grpc
from logservice_wire.errors import InvalidArgument
from logservice_wire.pem_text import CERTIFICATES, KEYS, pem_problem
from logservice_wire.regular_file import read_regular

from logservice_client.bounds import TLS_FILE_BYTES_MAX
from logservice_client.token_file import TokenFile, signature_of


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM bytes. `ca`: the authorities that signed the stores' certificates (None: the system's
    list). `certificate` and `key`: the client's own, for stores that ask for one. `server_name`:
    the name in the stores' certificate when it is not the address. `token`: shown with every call.
    """

    ca: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)
    server_name: str = ""
    token: TokenFile | None = None

    def credentials(self) -> grpc.ChannelCredentials:
        """What gRPC makes a channel with."""
        channel = grpc.ssl_channel_credentials(self.ca, self.key, self.certificate)
        if self.token is None:
            return channel
        calls = grpc.metadata_call_credentials(self.token, name="bearer")
        return grpc.composite_channel_credentials(channel, calls)

    def options(self) -> tuple[tuple[str, str], ...]:
        """Channel options that go with the credentials."""
        return (("grpc.ssl_target_name_override", self.server_name),) if self.server_name else ()

    def current(self) -> Tls:
        """This value, which never changes; see `TlsFiles.current`."""
        return self


class TlsFiles:
    """PEM files; "" for none. Looks at them whenever `current` is asked."""

    def __init__(
        self,
        ca: str = "",
        certificate: str = "",
        key: str = "",
        server_name: str = "",
        token_file: str = "",
    ) -> None:
        """Reads the files. `token_file` holds a bearer token (`TokenFile`). Raises InvalidArgument,
        with the name of the file that is wrong.
        """
        if bool(certificate) is not bool(key):
            raise InvalidArgument("a certificate and its key go together", field="tls")
        self._token = TokenFile(token_file) if token_file else None
        self._names = (ca, certificate, key)
        self._server_name = server_name
        self._seen = self._signature()
        self._tls = self._read()

    def __repr__(self) -> str:
        return f"<TlsFiles {', '.join(name for name in self._names if name)}>"

    def current(self) -> Tls:
        """The newest usable set; an equal one as long as the files are the same."""
        signature = self._signature()
        if signature != self._seen:
            try:
                self._tls = self._read()
                self._seen = signature
            except InvalidArgument:
                # Half of a rotation: `_seen` stays, so the next look tries again.
                pass
        return self._tls

    def _signature(self) -> tuple[object, ...]:
        return tuple(signature_of(name) for name in self._names if name)

    def _read(self) -> Tls:
        kinds = (CERTIFICATES, CERTIFICATES, KEYS)
        ca, certificate, key = map(_content, self._names, kinds)
        if certificate is not None and key is not None:
            _check_pair(certificate, key, self._names[1])
        return Tls(ca, certificate, key, self._server_name, self._token)


def tls_from_files(
    ca: str, certificate: str, key: str, server_name: str = "", token_file: str = ""
) -> TlsFiles | None:
    """None when no file is named: plaintext. Raises InvalidArgument."""
    if not (ca or certificate or key or token_file):
        return None
    return TlsFiles(ca, certificate, key, server_name, token_file)


def _content(name: str, wanted: Sequence[str]) -> bytes | None:
    if not name:
        return None
    try:
        found = read_regular(name, TLS_FILE_BYTES_MAX)
    except OSError as error:
        raise InvalidArgument(f"{name}: {error.strerror}", field="tls") from error
    problem = pem_problem(found, wanted)
    if problem:
        raise InvalidArgument(f"{name} {problem}", field="tls")
    return found


def _check_pair(certificate: bytes, key: bytes, name: str) -> None:
    """OpenSSL compares the two.

    Where it cannot, the handshake finds a mismatch, and the next look at the files mends it.
    """
    try:
        load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), certificate, key)
    except (ssl.SSLError, ValueError):
        raise InvalidArgument(
            f"{name} is no certificate, or not that of the key", field="tls"
        ) from None
    except OSError:
        return  # no descriptor left: it cannot be compared now


def load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Have `context` show the certificate. It takes files only, so the two go into an anonymous one
    where the system has such files; elsewhere it shows none. Raises ssl.SSLError, ValueError.
    """
    if not hasattr(os, "memfd_create"):
        return
    descriptor = os.memfd_create("tls")
    try:
        os.write(descriptor, key + b"\n" + certificate)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=_no_password)
    finally:
        os.close(descriptor)


def _no_password() -> str:
    raise ValueError("an encrypted key")
