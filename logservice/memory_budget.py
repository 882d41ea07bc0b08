"""memory_budget: what a store may keep in memory for others, part by part, and the sum.

Theory of operation. Whatever others can make a store keep belongs to one of the parts below: what
waits, what is cached, what streams, what catches up. (Follow streams and catch-up reads take from
`answers` before anything is read; what is sent to members that catch up waits in `peer_queues`.)
Each part has a limit of its own, and something that happens when it is full, to somebody who is
named here. So no part takes the room of another one, and the store's budget is the sum. An operator
who states a budget (`limits.memory_bytes_max`) is told at the start when the parts exceed it;
nothing is cut behind his back.

The budget is of bytes that a part counts. A process has other memory: the interpreter, the state of
each log, the index of log storage, entries that are durable here and not committed
(RAFT_UNCOMMITTED_BYTES_MAX of each log whose quorum is gone), and what Python takes beside the
bytes.

INV-MEM-2: the parts' limits add up to the budget: a store whose parts exceed the one that is stated
does not start.

`docs/limits.md` shows the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from logservice import bounds

ANSWER_COPIES: Final = 4
"""How often an answer may be in memory at a time: as it was read, as it was encoded, as gRPC holds
it, and in the socket."""

FULL_ALARM: Final = "memory part full"
"""How an alarm begins that names a part for whose room somebody had to pay lately."""

_CACHES: Final = bounds.LOGDB_ENTRY_CACHE_BYTES + bounds.LOGDB_COLUMN_CACHE_BYTES


class Part(NamedTuple):
    """One part of the budget.

    key: of [limits], empty when no key changes it. limit_bytes: the default. copies: how often what
    it counts may be in memory. each_directory: whether the limit is that of each data directory.
    when_full: what happens then, and to whom.
    """

    name: str
    key: str
    limit_bytes: int
    when_full: str
    copies: int = 1
    each_directory: bool = False


PARTS: Final[tuple[Part, ...]] = (
    Part(
        "answers",
        "answer_bytes_max",
        bounds.ANSWER_BYTES_MAX,
        "reads wait, then get BUSY, first those of the identity that takes nothing; its calls are"
        " cut",
        copies=ANSWER_COPIES,
    ),
    Part(
        "undelivered",
        "undelivered_bytes_max",
        bounds.UNDELIVERED_BYTES_MAX,
        "the connection with the most unfinished requests, of the identity with the most, is cut",
    ),
    Part(
        "call_lines",
        "",
        bounds.CALL_LINE_BYTES_MAX,
        "calls that come get BUSY, first those of an identity with a quarter of it",
    ),
    Part(
        "proposals",
        "proposal_bytes_max",
        bounds.STORE_PROPOSAL_BYTES_MAX,
        "appends and commands get BUSY, first those of the log that has the most waiting",
    ),
    Part(
        "unwritten",
        "unwritten_bytes_max",
        bounds.UNWRITTEN_BYTES_MAX,
        "entries of the store that sent the most are dropped, and sent again; own proposals wait",
    ),
    Part(
        "peer_queues",
        "peer_queue_bytes_max",
        bounds.PEER_QUEUES_BYTES_MAX,
        "messages to the store that reads the least are dropped, and sent again",
    ),
    Part(
        "peer_requests",
        "peer_request_bytes_max",
        bounds.PEER_REQUESTS_BYTES_MAX,
        "requests get BUSY, first those of the store that has the most under way",
    ),
    Part(
        "peer_partial",
        "",
        bounds.PEER_PARTIAL_BYTES_MAX,
        "the store with the most that is not whole loses its largest connection",
    ),
    Part(
        "admin_answers",
        "",
        bounds.ADMIN_ANSWER_BYTES_MAX,
        "the connection of the admin port that has taken nothing for the longest time is cut",
    ),
    Part(
        "caches",
        "",
        _CACHES,
        "the oldest go, and are read from the disk",
        each_directory=True,
    ),
)
"""In the order in which something passes them."""


def limits_of(configured: Mapping[str, int], directories: int) -> dict[str, int]:
    """Bytes of each part, by name: all copies, all data directories. `configured`: by key."""
    return {
        part.name: configured.get(part.key, part.limit_bytes)
        * part.copies
        * (directories if part.each_directory else 1)
        for part in PARTS
    }


def excess(budget: int, configured: Mapping[str, int], directories: int) -> str:
    """Why the parts do not fit into `budget`; empty when they do."""
    limits = limits_of(configured, directories)
    total = sum(limits.values())
    if total <= budget:
        return ""
    keys = [
        f"limits.{part.key}" + (f" ({part.copies} times)" if part.copies > 1 else "")
        for part in PARTS
        if part.key
    ]
    fixed = sum(limits[part.name] for part in PARTS if not part.key)
    return (
        f"expected >= {total}, what the parts take together: {', '.join(keys)}, and {fixed} bytes"
        f" that no key changes; got {budget}"
    )
