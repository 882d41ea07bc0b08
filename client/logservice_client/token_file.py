"""token_file: a bearer token that is shown with every call, from a file that somebody else renews.

Kubernetes writes a new token of a service account into its file before the old one ends. So the
file is looked at again every TOKEN_LOOK_S, and a call has the token that the file has by then. When
the file cannot be read, or is empty, the last token goes on: it may be good for a while.

gRPC sends a token over TLS only: a channel in plaintext cannot be made with one.
"""

from __future__ import annotations

import os
import time
from typing import Any, Final

import grpc
from logservice_wire.errors import InvalidArgument
from logservice_wire.regular_file import read_regular

from logservice_client.bounds import TOKEN_FILE_BYTES_MAX, TOKEN_LOOK_S

_PRINTABLE: Final = range(0x21, 0x7F)


class TokenFile(grpc.AuthMetadataPlugin):
    """gRPC asks it at every call, in any thread."""

    def __init__(self, name: str) -> None:
        """Reads the file. Raises InvalidArgument, with its name."""
        self.name = name
        self._seen = signature_of(name)
        self._token = _read(name)
        self._look_again_s = time.monotonic() + TOKEN_LOOK_S

    def __repr__(self) -> str:
        return f"<TokenFile {self.name}>"

    def __call__(self, context: grpc.AuthMetadataContext, callback: Any) -> None:
        """See gRPC."""
        callback((("authorization", f"Bearer {self.current()}"),), None)

    def current(self) -> str:
        """The newest token that could be read."""
        now_s = time.monotonic()
        if now_s >= self._look_again_s:
            self._look_again_s = now_s + TOKEN_LOOK_S
            signature = signature_of(self.name)
            if signature != self._seen:
                try:
                    self._token = _read(self.name)
                    self._seen = signature
                except InvalidArgument:
                    # Half of a renewal: `_seen` stays, so the next look tries again.
                    pass
        return self._token


def signature_of(name: str) -> object:
    """A value that changes when the file does; that it is missing is a state like any other."""
    try:
        status = os.stat(name)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _read(name: str) -> str:
    try:
        found = read_regular(name, TOKEN_FILE_BYTES_MAX).strip()
    except OSError as error:
        raise InvalidArgument(f"{name}: {error.strerror}", field="token") from error
    if not found or not all(one in _PRINTABLE for one in found):
        raise InvalidArgument(f"{name} holds no token", field="token")
    return found.decode("ascii")
