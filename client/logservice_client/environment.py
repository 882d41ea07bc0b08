"""environment: where the stores are and how TLS is spoken, from the variables that `logctl` takes.

``LOGSERVICE_ENDPOINTS``, and for TLS the files ``LOGSERVICE_TLS_CA``, ``LOGSERVICE_TLS_CERT``,
``LOGSERVICE_TLS_KEY`` and the name ``LOGSERVICE_TLS_SERVER_NAME``; ``LOGSERVICE_TOKEN_FILE`` is a
file with a bearer token. ``logservice cluster env`` prints them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from logservice_wire.errors import InvalidArgument

from logservice_client.tls import TlsFiles, tls_from_files

_TLS = ("CA", "CERT", "KEY", "SERVER_NAME")


def from_environment(environment: Mapping[str, str] = os.environ) -> tuple[str, TlsFiles | None]:
    """Endpoints and TLS. Raises InvalidArgument when no endpoint is named or a file is wrong."""
    endpoints = environment.get("LOGSERVICE_ENDPOINTS", "")
    if not endpoints:
        raise InvalidArgument("LOGSERVICE_ENDPOINTS names no store", field="endpoints")
    ca, certificate, key, name = (environment.get(f"LOGSERVICE_TLS_{one}", "") for one in _TLS)
    token = environment.get("LOGSERVICE_TOKEN_FILE", "")
    return endpoints, tls_from_files(ca, certificate, key, name, token)
