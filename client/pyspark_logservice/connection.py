"""Connection: options of reads and writes alike: where the stores are, and what they are shown.

They may stand in the environment of the driver, as for `logctl`; an option comes first. Tasks get
what the driver found. Files are read where a connection is made: on the driver, and in each task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypedDict

from logservice_client import TlsFiles
from logservice_client.tls import tls_from_files

from pyspark_logservice.checks import OptionError, seconds

RPC_TIMEOUT_DEFAULT_S: Final = 60.0
"""How long a call is tried for when no replica serves; longer than a failover."""

KNOWN: Final = {
    "logservice.endpoints": "host:port of one or more stores, separated by commas",
    "logservice.rpc.timeout": "seconds a read or an append is tried for",
    "logservice.tls.ca": "file: certificates that signed the stores' ones",
    "logservice.tls.cert": "file: the client's certificate",
    "logservice.tls.key": "file: the client's key",
    "logservice.tls.serverName": "what the stores' certificates say when it is not the address",
    "logservice.token.file": "file: a bearer token, read again when it changes",
}

_ENVIRONMENT: Final = {
    "logservice.endpoints": "LOGSERVICE_ENDPOINTS",
    "logservice.tls.ca": "LOGSERVICE_TLS_CA",
    "logservice.tls.cert": "LOGSERVICE_TLS_CERT",
    "logservice.tls.key": "LOGSERVICE_TLS_KEY",
    "logservice.tls.servername": "LOGSERVICE_TLS_SERVER_NAME",
    "logservice.token.file": "LOGSERVICE_TOKEN_FILE",
}
"""Options in lower case and the variables that stand for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """tls_*: names of PEM files, token_file: of one with a bearer token; "" for none."""

    endpoints: str
    rpc_timeout_s: float = RPC_TIMEOUT_DEFAULT_S
    tls_ca: str = ""
    tls_certificate: str = ""
    tls_key: str = ""
    tls_server_name: str = ""
    token_file: str = ""

    def files(self) -> tuple[str, str, str, str, str]:
        """What decides how a connection is secured."""
        return (
            self.tls_ca,
            self.tls_certificate,
            self.tls_key,
            self.tls_server_name,
            self.token_file,
        )

    def tls(self) -> TlsFiles | None:
        """The files as they are on this machine; None for plaintext. Raises InvalidArgument."""
        return tls_from_files(*self.files())


class ConnectionValues(TypedDict):
    """The fields of Connection."""

    endpoints: str
    rpc_timeout_s: float
    tls_ca: str
    tls_certificate: str
    tls_key: str
    tls_server_name: str
    token_file: str


def add_environment(options: dict[str, str], environment: Mapping[str, str]) -> None:
    """Put what only the environment says beside the options, whose keys are in lower case."""
    for name, variable in _ENVIRONMENT.items():
        if environment.get(variable):
            options.setdefault(name, environment[variable])


def connection_values(options: Mapping[str, str]) -> ConnectionValues:
    """The fields that the options give, whose keys are in lower case. Raises OptionError."""
    if not options.get("logservice.endpoints", "").strip():
        raise OptionError(
            "option 'logservice.endpoints', or LOGSERVICE_ENDPOINTS in the environment, is "
            "required: host:port,host:port"
        )
    return {
        "endpoints": options["logservice.endpoints"],
        "rpc_timeout_s": seconds(options, "logservice.rpc.timeout", RPC_TIMEOUT_DEFAULT_S),
        "tls_ca": options.get("logservice.tls.ca", ""),
        "tls_certificate": options.get("logservice.tls.cert", ""),
        "tls_key": options.get("logservice.tls.key", ""),
        "tls_server_name": options.get("logservice.tls.servername", ""),
        "token_file": options.get("logservice.token.file", ""),
    }
