"""A wall clock that is set while a process runs: the process goes on, then and once it is right.

Debian's libfaketime stands between the process and the system's clock: CLOCK_REALTIME is ahead by
what a file says, and the file changes while the process runs. The monotonic clocks are the
machine's. Nothing here sets the clock of this machine.

A store of one replica appends, frees what is truncated, and answers /healthz. With certificates it
takes no call while they are over by its clock, and goes on without a restart once that is right. A
client keeps its session and its hold. An archiver and a mirror bring what comes.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from logservice_client.sync import SyncLogClient
from logservice_wire.errors import LogServiceError

from logservice.cli.processes.local_cluster import LocalCluster
from tests.local_stores import started_cluster
from tests.programs import Archive, Mirror
from tests.waiting import wait_until

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))

HOUR_S = 3600
DAY_S = 24 * HOUR_S
DECADE_S = 3652 * DAY_S

pytestmark = pytest.mark.skipif(
    not LIBRARIES and "LOGSERVICE_REQUIRE_FAKETIME" not in os.environ,
    reason="no libfaketime; `make test-surroundings` installs it",
)


def each(often: list[int], nightly: list[int]) -> list[object]:
    """The jumps that a change tries, and those that it leaves to the long tests."""
    return [*often, *(pytest.param(one, marks=pytest.mark.long) for one in nightly)]


jumps = pytest.mark.parametrize(
    "ahead_s",
    each([HOUR_S, -2 * HOUR_S, DECADE_S, -DECADE_S], [1, -1, -HOUR_S, DAY_S, -DAY_S]),
)


class FakedClock:
    """The wall clock of processes. The machine's is not touched."""

    def __init__(self, file: Path) -> None:
        """It is right."""
        self._file = file
        self.ahead(0)

    def ahead(self, seconds: int) -> None:
        """From now on it shows what the machine's shows, and so much more."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:+d}")
        new.replace(self._file)

    @contextlib.contextmanager
    def over(self) -> Iterator[None]:
        """Processes that are started within live by this clock."""
        environment = {
            "LD_PRELOAD": str(LIBRARIES[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }
        with pytest.MonkeyPatch.context() as patched:
            for name, value in environment.items():
                patched.setenv(name, value)
            yield


@pytest.fixture
def clock(tmp_path: Path) -> FakedClock:
    """A clock that is right."""
    return FakedClock(tmp_path / "clock")


@contextlib.contextmanager
def one_store(folder: Path, **options: bool) -> Iterator[LocalCluster]:
    """A cluster of one store, which is visited ten times a second."""
    settings = {"truncation": {"interval_s": 0.1}}
    with started_cluster(folder, settings=settings, stores=1, **options) as running:
        yield running


@pytest.fixture
def cluster(tmp_path: Path, clock: FakedClock) -> Iterator[LocalCluster]:
    """One whose store lives by `clock`."""
    with clock.over(), one_store(tmp_path / "cluster") as running:
        yield running


@pytest.fixture
def secured(tmp_path: Path, clock: FakedClock) -> Iterator[LocalCluster]:
    """One whose store lives by `clock`, with certificates."""
    with clock.over(), one_store(tmp_path / "cluster", tls=True) as running:
        yield running


def answer(cluster: LocalCluster, path: str) -> str:
    """What the store says at the admin port."""
    address = cluster.stores["store-1"].admin
    with urllib.request.urlopen(f"http://{address}{path}", timeout=20) as found:
        return str(found.read().decode())


def installed(cluster: LocalCluster) -> float:
    """How often the log was truncated on the store."""
    line = 'logservice_truncation_visits_total{outcome="installed"}'
    found = [one for one in answer(cluster, "/metrics").splitlines() if one.startswith(line)]
    return float(found[0].split()[-1]) if found else 0.0


def goes_on(cluster: LocalCluster) -> None:
    """The store appends, truncates, and is healthy."""
    with SyncLogClient(cluster.endpoints(), tls=cluster.client_tls()) as client:
        log = client.shard(1)
        before = installed(cluster)
        log.append(b"kept")
        lsn = log.append(b"let go")
        log.append(b"the last")
        assert log.truncate(lsn) == lsn
        wait_until(lambda: installed(cluster) > before, 30.0)
    assert answer(cluster, "/healthz")


@jumps
def test_a_store_goes_on_when_its_clock_is_set_and_when_it_is_right_again(
    cluster: LocalCluster, clock: FakedClock, ahead_s: int
) -> None:
    goes_on(cluster)
    clock.ahead(ahead_s)
    goes_on(cluster)
    clock.ahead(0)
    goes_on(cluster)


@pytest.mark.parametrize("ahead_s", [1, -1, HOUR_S, DAY_S])
def test_certificates_that_are_good_by_both_clocks_stay_good(
    secured: LocalCluster, clock: FakedClock, ahead_s: int
) -> None:
    goes_on(secured)
    clock.ahead(ahead_s)
    goes_on(secured)


@pytest.mark.parametrize("ahead_s", [2 * DECADE_S, -DECADE_S])
def test_certificates_that_are_over_by_a_wrong_clock_are_good_once_it_is_right(
    secured: LocalCluster, clock: FakedClock, ahead_s: int
) -> None:
    goes_on(secured)
    clock.ahead(ahead_s)
    with (
        SyncLogClient(secured.endpoints(), tls=secured.client_tls()) as client,
        pytest.raises(LogServiceError),
    ):
        client.shard(1).append(b"no handshake", timeout=5.0)
    assert answer(secured, "/healthz")
    clock.ahead(0)
    goes_on(secured)


CLIENT = """
import sys
from logservice_client.sync import SyncLogClient
with SyncLogClient(sys.argv[1]) as client:
    log = client.shard(1)
    with log.hold("held", log.append(b"the first"), ttl=60) as held:
        for line in sys.stdin:
            lsn = log.append(line.encode(), timeout=60.0)
            held.check()
            print(lsn, flush=True)
"""


@pytest.mark.parametrize(
    "ahead_s",
    each([HOUR_S, -HOUR_S, DECADE_S, -DECADE_S], [1, -1, DAY_S, -DAY_S]),
)
def test_a_client_keeps_its_session_and_its_hold(
    tmp_path: Path, clock: FakedClock, ahead_s: int
) -> None:
    with one_store(tmp_path / "cluster") as cluster:
        with clock.over():
            client = subprocess.Popen(
                [sys.executable, "-c", CLIENT, ",".join(cluster.endpoints())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert client.stdin is not None
        assert client.stdout is not None
        lsns = []
        for ahead in (0, ahead_s, ahead_s, 0, 0):
            clock.ahead(ahead)
            client.stdin.write("a record\n")
            client.stdin.flush()
            lsns.append(int(client.stdout.readline()))
        client.stdin.close()
        assert client.wait(60) == 0
        client.stdout.close()
        assert lsns == list(range(lsns[0], lsns[0] + 5)), "each once, and none lost"


@pytest.mark.parametrize("ahead_s", each([-2 * HOUR_S, DECADE_S], [2 * HOUR_S, -DECADE_S]))
def test_an_archiver_and_a_mirror_bring_what_comes(
    tmp_path: Path, clock: FakedClock, ahead_s: int
) -> None:
    with (
        one_store(tmp_path / "cluster") as cluster,
        one_store(tmp_path / "second") as second,
        SyncLogClient(cluster.endpoints()) as client,
    ):
        name = client.hakeeper.list_shards()[0].name
        archive = Archive(tmp_path / "archive", [name])
        archive.configure(cluster.endpoints())
        mirror = Mirror(tmp_path, cluster.endpoints(), second.endpoints(), {name: "copy"})
        with contextlib.ExitStack() as ending:
            with clock.over():
                archive.begin()
                ending.callback(archive.process.end)
                mirror.begin()
                ending.callback(mirror.process.end)
            for ahead in (0, ahead_s, 0):
                clock.ahead(ahead)
                lsn = client.shard(1).append(b"a record")
                wait_until(lambda: not archive.lacks({name: lsn + 1}))  # noqa: B023 - at once
                wait_until(lambda: not mirror.lacks({name: lsn + 1}))  # noqa: B023 - at once
