"""client_session: what every `logctl` command shares, which is its options and a client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import click
from logservice_client import LogClient, TlsFiles
from logservice_wire.errors import InvalidArgument

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Session:
    """The group makes it, and commands get it through `pass_session`."""

    endpoints: str
    timeout_s: float
    tls: TlsFiles | None = None

    def run(self, work: Callable[[LogClient], Awaitable[T]]) -> T:
        """Run `work` with a connected client. Raises what `work` raises."""
        if not self.endpoints:
            raise InvalidArgument(
                "no endpoints: say --endpoints host:port,... or set LOGSERVICE_ENDPOINTS",
                field="endpoints",
            )

        async def main() -> T:
            async with LogClient(self.endpoints, tls=self.tls) as client:
                return await work(client)

        return asyncio.run(main())


pass_session = click.make_pass_decorator(Session)
"""The decorator that hands the Session to a command as its first argument."""
