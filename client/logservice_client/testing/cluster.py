"""Cluster: stores of a test, as real processes on free ports of this machine.

It is what ``logservice cluster up`` starts; the commands go through the keeper, which ends the
stores whatever becomes of this process (`keeper`).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from logservice_wire.errors import NotReady

from logservice_client.bounds import KEEPER_END_S, TEST_SEGMENT_BYTES
from logservice_client.client import LogClient
from logservice_client.environment import from_environment
from logservice_client.sync import SyncLogClient
from logservice_client.testing import keeper
from logservice_client.testing.server_command import server_command
from logservice_client.tls import TlsFiles

_EXPORT: Final = re.compile(r"^export (LOGSERVICE_\w+)=(.*)$", re.MULTILINE)


class Cluster:
    """Get it from `local_cluster`. Any thread may use it."""

    def __init__(self, asking: _Keeper, directory: Path, environment: dict[str, str]) -> None:
        """See `local_cluster`."""
        self.directory = directory
        """A folder for each store, with its log ``store.log``."""
        self.environment = environment
        """LOGSERVICE_ENDPOINTS and, with TLS, LOGSERVICE_TLS_*: for `from_env` and for programs."""
        self._keeper = asking
        self._address, self._tls = from_environment(environment)

    @property
    def endpoints(self) -> list[str]:
        """Client addresses of all stores, running or not."""
        return self._address.split(",")

    @property
    def tls(self) -> TlsFiles | None:
        """What a client presents and trusts: the administrator of the cluster. None: plaintext."""
        return self._tls

    @property
    def stores(self) -> list[str]:
        """The names of the stores: ``store-1`` and so on."""
        return [f"store-{number}" for number in range(1, len(self.endpoints) + 1)]

    def client(self) -> SyncLogClient:
        """A new client; the caller closes it."""
        return SyncLogClient(self._address, tls=self._tls)

    def async_client(self) -> LogClient:
        """A new client for the running event loop; the caller closes it."""
        return LogClient(self._address, tls=self._tls)

    def leader(self, shard_id: int = 1) -> str:
        """The store that leads the log."""
        with self.client() as client:
            return client.shard(shard_id).connect().leader_store

    def kill(self, store: str) -> None:
        """End a store with SIGKILL, as if its machine had lost power."""
        self._keeper.run("kill", store)

    def stop(self, store: str) -> None:
        """End a store with SIGTERM: it hands its leaderships away first."""
        self._keeper.run("stop", store)

    def start(self, store: str) -> None:
        """Start a store that was killed or stopped. It need not serve yet."""
        self._keeper.run("start", store)

    def __repr__(self) -> str:
        return f"<Cluster of {self._address} in {self.directory}>"


@contextlib.contextmanager
def local_cluster(
    *,
    stores: int = 1,
    logs: int = 1,
    tls: bool = False,
    directory: Path | str | None = None,
    timeout: float = 60.0,
) -> Iterator[Cluster]:
    """A new cluster, ready to use; it ends with the context, or with this process.

    `logs`: how many there are at the beginning, with the ids 1, 2, ... `directory`: a new or empty
    one, which stays; by default a temporary one, which does not. `timeout`: seconds until it has to
    be ready. Raises InvalidArgument when no server is installed, NotReady when it did not start.
    """
    command = [*server_command(), "cluster"]
    place = Path(directory or tempfile.mkdtemp(prefix="logservice-")).resolve()
    where = ["--dir", str(place)]
    up = [*command, "up", *where, "--stores", str(stores), "--shards", str(logs)]
    up += ["--segment-bytes", str(TEST_SEGMENT_BYTES), "--timeout", str(timeout)]
    up += ["--tls"] if tls else []
    plan = {
        "up": up,
        "down": [*command, "down", *where, "--kill"],
        "remove": "" if directory else str(place),
    }
    with _Keeper(command, where, plan) as asking:
        environment = _exported(asking.answer())
        yield Cluster(asking, place, environment)


def _exported(printed: str) -> dict[str, str]:
    """The variables that ``logservice cluster up`` exports; a value is quoted for a shell."""
    return {name: "".join(shlex.split(value)) for name, value in _EXPORT.findall(printed)}


class _Keeper:
    """The keeper's process, seen from here."""

    def __init__(self, command: Sequence[str], where: Sequence[str], plan: object) -> None:
        """It begins to start the cluster."""
        self._command = command
        self._where = where
        self._one_at_a_time = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, keeper.__file__, json.dumps(plan), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def run(self, verb: str, store: str) -> None:
        """Run ``logservice cluster VERB STORE``. Raises NotReady when it fails."""
        asked = [*self._command, verb, *self._where, store]
        with self._one_at_a_time:
            assert self._process.stdin is not None
            try:
                self._process.stdin.write(json.dumps(asked).encode() + b"\n")
                self._process.stdin.flush()
            except BrokenPipeError:
                pass  # `answer` says that the keeper is gone
            self.answer()

    def answer(self) -> str:
        """What the command printed. Raises NotReady when it failed, or when the keeper is gone."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise NotReady("the keeper of the cluster has ended")
        answer = json.loads(line)
        printed: str = answer["out"] + answer["err"]
        if answer["code"] != 0:
            raise NotReady("the command of the cluster failed", why=printed.strip())
        return printed

    def __enter__(self) -> _Keeper:
        return self

    def __exit__(self, *_: object) -> None:
        """Returns when the stores are gone."""
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate(timeout=KEEPER_END_S)
