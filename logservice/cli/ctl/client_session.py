"""client_session: what every `logctl` command shares: options, and a client to run with."""

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
    """Set by the group, found by commands through `click.pass_obj`."""

    endpoints: str
    timeout_s: float
    tls: TlsFiles | None = None

    def run(self, work: Callable[[LogClient], Awaitable[T]]) -> T:
        """Run `work` with a connected client; raises what it raises."""
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
"""Hands the Session to a command as its first argument."""
