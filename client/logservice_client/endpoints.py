"""Endpoints: the addresses a client is given, taken apart and checked.

gRPC takes a name without a port for port 443, and then waits for somebody there until the deadline;
so an address without a port is refused before anything is dialled.
"""

from __future__ import annotations

from collections.abc import Sequence

from logservice_wire.errors import InvalidArgument


def parse_endpoints(endpoints: str | Sequence[str]) -> list[str]:
    """The addresses of a list, or of text with commas between them.

    Raises InvalidArgument when there is none, or one is not ``host:port`` (``[v6]:port``).
    """
    names = endpoints.split(",") if isinstance(endpoints, str) else endpoints
    addresses = [address.strip() for address in names if address.strip()]
    if not addresses:
        raise InvalidArgument("at least one address is needed", field="endpoints")
    for address in addresses:
        check_address(address)
    return addresses


def check_address(address: str) -> None:
    """Raises InvalidArgument for what is not ``host:port``."""
    host, separator, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    number = int(port) if port.isascii() and port.isdigit() and len(port) < 6 else 0
    if not separator or not host or not 0 < number < 65_536 or (":" in host and not bracketed):
        raise InvalidArgument(
            f"{address!r} is not host:port, an address that stores serve clients on",
            field="endpoints",
        )
