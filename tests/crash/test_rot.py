"""A group before a durable mark rots; all other bits and files do in `make crash`."""

from __future__ import annotations

from tests.crash.every_bit import judge, write
from tests.logdb.helpers import of_plain_bytes

SEGMENT_BYTES = 16 * 1024


@of_plain_bytes
def test_the_newest_group_before_a_durable_mark() -> None:
    marked = write(SEGMENT_BYTES, mark=True)
    found = judge(marked, *marked.newest, step=13)
    assert found["newest group dropped"] == 0
    assert found["one replica faulty"] > 1000
    assert judge(marked, marked.newest[1], step=7)["no effect"]
