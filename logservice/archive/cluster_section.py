"""cluster_section: how a configuration names a cluster: client addresses and certificates.

It is a file of its own because a mirror names two clusters, and needs nothing else of an archive's
settings, which need pyarrow.
"""

from __future__ import annotations

import msgspec
from logservice_client.tls import TlsFiles, tls_from_files


class ClusterSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the logs are: client addresses of stores, and the certificate that is shown there."""

    endpoints: list[str]
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    tls_server_name: str = ""

    def tls(self) -> TlsFiles | None:
        """None: plaintext."""
        return tls_from_files(self.tls_ca, self.tls_cert, self.tls_key, self.tls_server_name)
