"""Rotten files: a part of them is tried here, every bit of a segment and all else in ``make
crash``.
"""

from __future__ import annotations

import subprocess
import sys

from tests.crash.every_bit import judge, write
from tests.logdb.helpers import of_plain_bytes

SEGMENT_BYTES = 16 * 1024


def test_every_bit_of_every_kind_of_record() -> None:
    """The groups at the start hold all kinds of records; the rest of the segment is sampled."""
    written = write(SEGMENT_BYTES, mark=False)
    found = judge(written, 0, 2048) + judge(written, 2048, step=61)
    assert found["one replica faulty"] > 5000
    assert found["newest group dropped"] > 100


@of_plain_bytes
def test_the_newest_group_before_a_durable_mark() -> None:
    marked = write(SEGMENT_BYTES, mark=True)
    found = judge(marked, *marked.newest, step=13)
    assert found["newest group dropped"] == 0
    assert found["one replica faulty"] > 1000
    assert judge(marked, marked.newest[1], step=7)["no effect"]


def test_every_other_file_in_many_places() -> None:
    command = [sys.executable, "-m", "tests.crash.rot", "--stride", "60"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-5000:]
    assert {"CURRENT", "MANIFEST", "ldb", "log", "snap", "IDENTITY", "BALLAST", "access-book"} <= {
        line.split()[0] for line in ended.stdout.splitlines()
    }
