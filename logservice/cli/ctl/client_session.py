"""client_session: what every `logctl` command shares, which is its options and a client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

import click
from logservice_client import LogClient, TlsFiles
from logservice_client.tls import tls_from_files
from logservice_wire.errors import InvalidArgument

from logservice.cli.ctl.time_left import left_s, now_s

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Session:
    """The group makes it when the command begins, and commands get it through `pass_session`.

    `patience_s` is what ``--timeout`` says. A command is over in that time: it gives each of its
    calls `timeout_s`, what is left then. One that goes on as long as there is something to do
    (follow, read, apply) gives `patience_s` to each part instead, and its help says so.
    """

    endpoints: str
    patience_s: float
    tls: TlsFiles | None = None
    began_s: float = field(default_factory=now_s)

    @property
    def timeout_s(self) -> float:
        """What is left of the command's time, and never nothing."""
        return left_s(self.began_s + self.patience_s)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """From the options of `logctl` itself, by their names. Raises InvalidArgument."""
        ca, certificate, key, name = (
            options[f"tls_{one}"] for one in ("ca", "cert", "key", "server_name")
        )
        tls = tls_from_files(ca, certificate, key, name, options["token_file"])
        return cls(options["endpoints"], options["timeout"], tls)

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
