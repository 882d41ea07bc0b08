"""A PostgreSQL server of this machine, for the story and the tests: made, started, killed,
restored.

It listens on a unix socket in its own directory, and nowhere else by itself. PostgreSQL refuses to
run as root; then everything of it runs as the user ``postgres``, whom Debian's package makes.

A killed server cannot tidy up. What it leaves outside of its directory, a few bytes of System V
shared memory, is removed here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from examples.postgres.address import Address
from examples.postgres.protocol import PostgresError
from examples.postgres.replication import Answer, Connection

USER: Final = "postgres"
PORT: Final = 5432
"""It names the socket's file, and no port of the network, unless a server listens there, too."""

_DAC_READ_SEARCH: Final = 1 << 2  # capabilities(7)

ORDINARY: Final = {"database": "postgres", "search_path": "public"}
"""Startup parameters of a session that writes, as one of an application."""

STANDBY: Final = "logservice"
START_LIMIT_S: Final = 120.0
STOP_LIMIT_S: Final = 120.0

SETTINGS: Final = {
    "listen_addresses": "''",
    "wal_level": "replica",
    "wal_keep_size": "'256MB'",  # of a new timeline, until a shipper has made its slot
    "max_connections": "40",
    "shared_buffers": "32MB",
    "dynamic_shared_memory_type": "mmap",  # a killed server leaves none behind
    "synchronous_commit": "on",
    "synchronous_standby_names": f"'{STANDBY}'",
    "log_line_prefix": "'%m [%p] '",
}


class PostgresFailed(PostgresError):
    """A program of PostgreSQL failed. The message has what it said."""


def programs() -> Path | None:
    """The directory of PostgreSQL's programs, of the newest version; None when there is none."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/postgres"),
        key=lambda path: int(path.parts[-3]) if path.parts[-3].isdigit() else 0,
    )
    if found:
        return found[-1].parent
    elsewhere = shutil.which("initdb")
    return Path(elsewhere).resolve().parent if elsewhere else None


def as_postgres(words: Sequence[str | Path]) -> list[str]:
    """The command, run as a user as whom PostgreSQL runs.

    A `restore_command` runs as that user, too, and runs this project, which may lie where only root
    can read. So root gives its commands the right to read everything, and no other one, if it has
    that right itself.
    """
    if os.geteuid() != 0:
        return [*map(str, words)]
    prefix = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups"]
    if _may_read_everything():
        prefix += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    return [*prefix, *map(str, words)]


def _may_read_everything() -> bool:
    status = Path("/proc/self/status").read_text()
    (bounding,) = re.findall(r"^CapBnd:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return bool(int(bounding, 16) & _DAC_READ_SEARCH)


def give_to_postgres(directory: Path) -> None:
    """Make a directory that PostgreSQL's user may write into."""
    directory.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0:
        shutil.chown(directory, USER, USER)


class Postgres:
    """One server in one directory."""

    def __init__(self, directory: Path, port: int = PORT) -> None:
        found = programs()
        if found is None:
            raise PostgresFailed("PostgreSQL is not installed (Debian's package: postgresql)")
        self.programs = found
        self.directory = directory
        self.data = directory / "data"
        self.log = directory / "server.log"
        self.port = port
        self.address = Address(str(directory), port, USER)
        self._process: subprocess.Popen[bytes] | None = None

    # --- a life -----------------------------------------------------------------------------------

    def create(self, *, segment_mib: int = 16, **settings: str) -> None:
        """A new, empty database system with checksums."""
        give_to_postgres(self.directory)
        self.run(
            "initdb",
            "-D",
            self.data,
            "-U",
            USER,
            "-A",
            "trust",
            "-k",
            "-E",
            "UTF8",
            "--locale=C",
            f"--wal-segsize={segment_mib}",
        )
        self.configure({**SETTINGS, **settings})

    def restore(self, backup: Path, settings: dict[str, str]) -> None:
        """Become a copy of a base backup, which recovers when it is started."""
        give_to_postgres(self.directory)
        self._must(as_postgres(["cp", "-a", backup, self.data]))
        self.configure(settings)
        self._must(as_postgres(["touch", self.data / "recovery.signal"]))

    def configure(self, settings: dict[str, str]) -> None:
        """Add to its configuration, from the next start on; values as the file has them."""
        lines = "".join(f"{name} = {value}\n" for name, value in settings.items())
        with (self.data / "postgresql.conf").open("a") as file:
            file.write(lines)

    def start(self) -> None:
        """Start it. It need not answer yet."""
        command: list[str | Path] = [
            self.programs / "postgres",
            "-D",
            self.data,
            "-k",
            self.directory,
            "-p",
            str(self.port),
        ]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                as_postgres(command), stdout=log, stderr=log, start_new_session=True
            )

    def wait(self, *, recovered: bool = True) -> None:
        """Wait until it answers, and until it has recovered. Raises PostgresFailed when it has
        ended.
        """
        deadline_s = time.monotonic() + START_LIMIT_S
        while True:
            assert self._process is not None
            if self._process.poll() is not None:
                raise PostgresFailed(f"PostgreSQL has ended:\n{self.last_lines()}")
            with contextlib.suppress(PostgresError):
                in_recovery = self.value("SELECT pg_is_in_recovery()") == "t"
                if not (recovered and in_recovery):
                    return
            if time.monotonic() > deadline_s:
                raise PostgresFailed(f"PostgreSQL is not ready:\n{self.last_lines()}")
            time.sleep(0.2)

    def stop(self) -> None:
        """Shut it down as an administrator does; its files are consistent then."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(STOP_LIMIT_S)
            self._process = None

    def kill(self) -> None:
        """SIGKILL for all its processes, as if the machine had lost power."""
        if self._process is None or self._process.poll() is not None:
            return
        children = _children(self._process.pid)
        shared = _shared_memory(self.data / "postmaster.pid")
        for pid in (self._process.pid, *children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(STOP_LIMIT_S)
        self._process = None
        deadline_s = time.monotonic() + STOP_LIMIT_S
        while any(_runs(pid) for pid in children) and time.monotonic() < deadline_s:
            time.sleep(0.02)
        if shared:
            subprocess.run(["ipcrm", "-m", shared], check=False, capture_output=True)

    def remove(self) -> None:
        """Kill it, and delete everything of it."""
        self.kill()
        shutil.rmtree(self.directory)

    # --- asking -----------------------------------------------------------------------------------

    def query(self, sql: str) -> Answer:
        """Run SQL in a connection of its own."""
        return asyncio.run(self._query(sql))

    def value(self, sql: str) -> str:
        """The one value that SQL gives, as text."""
        ((value, *_), *_) = self.query(sql).rows
        return (value or b"").decode()

    async def _query(self, sql: str) -> Answer:
        connection = await Connection.connect(self.address, ORDINARY)
        try:
            return await connection.query(sql)
        finally:
            connection.close()

    def base_backup(self, directory: Path) -> None:
        """A base backup without WAL: that comes from the log."""
        self.run("pg_basebackup", *self.place, "-D", directory, "-X", "none", "-c", "fast")

    @property
    def place(self) -> list[str]:
        """Where its clients find it, as their arguments."""
        return ["-h", str(self.directory), "-p", str(self.port), "-U", USER]

    def run(self, program: str, *words: str | Path, limit_s: float = 300.0) -> str:
        """Run one of PostgreSQL's programs; what it printed. Raises PostgresFailed."""
        return self._must(as_postgres([self.programs / program, *words]), limit_s)

    def last_lines(self, count: int = 20) -> str:
        """The end of the server's log."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])
        except FileNotFoundError:
            return ""

    def _must(self, command: Sequence[str], limit_s: float = 300.0) -> str:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=limit_s, cwd="/"
        )
        if done.returncode != 0:
            raise PostgresFailed(f"{' '.join(command)}: {done.stdout}{done.stderr}")
        return done.stdout


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _shared_memory(pid_file: Path) -> str:
    """The id of the segment that a running server has, from its seventh line; "" for none."""
    try:
        words = pid_file.read_text().splitlines()[6].split()
    except (OSError, IndexError):
        return ""
    return words[1] if len(words) == 2 else ""
