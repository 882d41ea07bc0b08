"""A real process on real files and the real LevelDB is killed in the middle of writing, again
and again.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from pathlib import Path

from logservice.hard_state import HardState
from logservice.ids import Index, ReplicaId, Term
from logservice.logdb.io.posix_vfs import PosixVfs
from logservice.logdb.options import LogDbOptions
from logservice.logdb.recovery import offline
from tests.logdb.helpers import all_entries, entries, log_of, real_world, update

OPTIONS = LogDbOptions(segment_bytes=64 * 1024, entry_cache_bytes=0, ballast_bytes=0)
KILLS = 6


def write_for_ever(path: str) -> None:
    """The child commits three entries at a time for two replicas, says so, and compacts at
    times.
    """
    db = real_world(path, OPTIONS).open()
    log = log_of(db)
    while True:
        first = log.last_index() + 1
        term = log.hard_state.term + 1
        new = entries(first, first + 2, size=500)
        db.commit(
            [
                update(1, 1, new, hard=(term, term % 3 + 1, log.hard_state.commit)),
                update(2, 1, entries(first, first + 2)),
            ]
        )
        print(first + 2, term, flush=True)
        if first % 60 == 1 and first > 100:
            hard = log.hard_state
            db.commit([update(1, 1, hard=(hard.term, hard.vote, first - 100))])
            db.commit([update(1, 1, snapshot=first - 100)])
            db.collect_garbage()


def run_and_kill(path: str, lines: int) -> tuple[int, int]:
    """Let the child ack about `lines` groups, kill it; the last (index, term) that it acked."""
    child = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from tests.logdb.test_sigkill import write_for_ever;"
            "write_for_ever(sys.argv[1])",
            path,
        ],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    acked = (0, 0)
    watchdog = threading.Timer(60, child.kill)
    watchdog.start()
    try:
        assert child.stdout is not None
        for number, line in enumerate(child.stdout):
            if line.endswith("\n"):
                index, term = line.split()
                acked = int(index), int(term)
            if number == lines:
                child.kill()
    finally:
        watchdog.cancel()
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()
    return acked


def test_a_killed_process_loses_nothing_that_it_acked(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    rng = random.Random(3)
    for _ in range(KILLS):
        index, term = run_and_kill(path, rng.randrange(20, 120))
        assert index > 0
        assert offline.check(PosixVfs(), path).ok
        world = real_world(path, OPTIONS)
        db = world.open()
        assert not db.recovery_report.damages
        log = log_of(db)
        assert log.last_index() >= index
        assert log.hard_state.term >= term
        first, last = log.first_index(), log.last_index()
        assert all_entries(log) == entries(first, last, size=500)
        assert all_entries(log_of(db, 2, 1)) == entries(1, last)
        assert log.hard_state == HardState(
            Term(log.hard_state.term),
            ReplicaId(log.hard_state.term % 3 + 1),
            Index(log.hard_state.commit),
        )
        world.close(db)
    assert log_of(real_world(path, OPTIONS).open()).first_index() > 1
