"""Where a PostgreSQL server is, as whom we come, and how both know each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from examples.postgres.tls import Mode


@dataclass(frozen=True, slots=True)
class Address:
    """`host`: the directory of its unix socket when it begins with a slash; there is no TLS then.
    Over the network there is, and the server's certificate is verified, unless `mode` says
    otherwise. `ca`: the file of its CA; None: the system's. Who has a password wants the server to
    ask for it by SCRAM, and to show that it knows it, too.
    """

    host: str
    port: int
    user: str
    password: str = field(default="", repr=False)
    mode: Mode = Mode.VERIFY_FULL
    ca: Path | None = None

    @property
    def local(self) -> bool:
        """Whether it is a unix socket."""
        return self.host.startswith("/")
