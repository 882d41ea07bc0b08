"""A difference of two wall-clock times is no duration, so few files read that clock.

Each stands here with what it reads it for. Durations are those of `logservice.clock` (the monotonic
clock, and boottime for the end of rights) or of the event loop. A file that is not here asks for
neither `time.time` nor `datetime.now`; one that reads it no more is taken out.
"""

from __future__ import annotations

import pytest

from tests.tidy import source_tree
from tests.tidy.source_tree import python_files, relative

STAMP = "when something was made, as a time of day that is written down"
CALENDAR = "certificates name times of day"
ACROSS = "the other time is another machine's, or another process's"

READERS = {
    "logservice/clock.py": "the seam",
    "logservice/server/audit/trail.py": STAMP,
    "logservice/server/edge/identity_book.py": STAMP,
    "logservice/server/reload/reloads.py": STAMP,
    "logservice/server/tls/admin_tls.py": CALENDAR,
    "logservice/server/tls/store_tls.py": CALENDAR,
    "logservice/cli/certificates/authority.py": CALENDAR,
    "logservice/cli/certificates/commands.py": CALENDAR,
    "logservice/cli/ctl/events.py": ACROSS,
    "logservice/cli/ctl/identities.py": ACROSS,
    "logservice/cli/ctl/named_sessions.py": ACROSS,
    "logservice/cli/processes/archive_commands.py": STAMP,
    "logservice/archive/bucket.py": "S3 signs a request with the time of day",
    "logservice/archive/cluster_document.py": STAMP,
    "logservice/archive/shipping.py": STAMP,
    "client/logservice_client/appender.py": STAMP,
    "client/logservice_client/arrow.py": STAMP,
    "client/logservice_client/lag.py": ACROSS,
    "client/logservice_client/shard.py": STAMP,
    "client/pyspark_logservice/writing/identity.py": ACROSS,
    "client/pyspark_logservice/writing/options.py": ACROSS,
    "client/pyspark_logservice/writing/writer.py": STAMP,
    "examples/postgres/certificates.py": CALENDAR,
    "examples/postgres/replication.py": "PostgreSQL's protocol says it",
    "examples/postgres_changes/copy.py": STAMP,
    "examples/postgres_changes/stream.py": STAMP,
}


def test_the_wall_clock_is_read_where_a_time_of_day_is_meant() -> None:
    found = {
        relative(path)
        for path in python_files("logservice", "client", "examples", "tools")
        if source_tree.wall_clock_reads(path.read_text(encoding="utf-8"))
    }
    assert found == READERS.keys()


@pytest.mark.parametrize(
    "source",
    [
        "import time\nleft_s = ends_s - time.time()",
        "now_us = time.time_ns() // 1000",
        "clock = time.time",
        "from datetime import datetime\ndatetime.now(UTC)",
        "import datetime\ndatetime.datetime.now(datetime.UTC)",
        "datetime.datetime.utcnow()",
    ],
)
def test_a_read_is_found(source: str) -> None:
    assert source_tree.wall_clock_reads(source)


@pytest.mark.parametrize(
    "source", ["time.monotonic()", "loop.time()", "row.time", "clock.now()", "status.st_mtime_ns"]
)
def test_other_clocks_are_not(source: str) -> None:
    assert not source_tree.wall_clock_reads(source)
