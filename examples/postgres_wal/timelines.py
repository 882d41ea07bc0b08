"""Where shipping goes on: by what the log ends with, and what the server says of its timelines.

A history file has a line for each timeline that a timeline comes from: its number, the position
where it was left, and a reason. Nothing here asks anybody; what has to be asked is returned.
"""

from __future__ import annotations

from dataclasses import dataclass

from examples.postgres.replication import System
from examples.postgres.wal_position import position_of, position_text, segment_start
from examples.postgres_wal.chunk import Chunk


class ShippingRefused(Exception):
    """The server's WAL is none that the log could go on with. Words say why."""


@dataclass(frozen=True, slots=True)
class Ancestor:
    """A timeline, and the position where its successor left it."""

    timeline: int
    left_at: int


@dataclass(frozen=True, slots=True)
class Next:
    """What to stream. `history`: the timeline begins here, so its history file has to be appended
    before.
    """

    timeline: int
    start: int
    history: bool


def parse_history(text: bytes) -> list[Ancestor]:
    """The ancestors of a timeline, oldest first. Raises ShippingRefused."""
    ancestors: list[Ancestor] = []
    for line in text.decode("utf-8", "replace").splitlines():
        words = line.split(None, 2)
        if not words or words[0].startswith("#"):
            continue
        try:
            found = Ancestor(int(words[0]), position_of(words[1]))
        except (ValueError, IndexError) as error:
            raise ShippingRefused(f"a history file has the line {line!r}") from error
        if ancestors and found.timeline <= ancestors[-1].timeline:
            raise ShippingRefused(f"a history file goes back to timeline {found.timeline}")
        ancestors.append(found)
    return ancestors


def where_to_go_on(end: Chunk | None, system: System, history: bytes | None) -> Next:
    """What to stream next. `end`: the log's last chunk; None: the log is empty. `history`: the
    history file of the server's timeline, None for timeline 1.

    Raises ShippingRefused.
    """
    if end is None:
        start = segment_start(system.position, system.segment_log2)
        return Next(system.timeline, start, history=system.timeline > 1)
    if (end.system, end.segment_log2) != (system.identifier, system.segment_log2):
        raise ShippingRefused(
            f"the log is that of database system {end.system} with segments of 2^{end.segment_log2}"
            f" bytes, the server is system {system.identifier} with 2^{system.segment_log2}"
        )
    if end.timeline == system.timeline:
        if end.end > system.position:
            raise ShippingRefused(
                f"the log reaches {position_text(end.end)}, the server only"
                f" {position_text(system.position)}: it has lost WAL that it had shipped"
            )
        return Next(end.timeline, end.end, history=False)
    if end.timeline > system.timeline:
        raise ShippingRefused(
            f"the log goes on with timeline {end.timeline}, and the server is on"
            f" {system.timeline}: another server has taken over"
        )
    ancestors = parse_history(history or b"")
    lines = [one.timeline for one in ancestors] + [system.timeline]
    if end.timeline not in lines:
        raise ShippingRefused(
            f"the server's timeline {system.timeline} does not come from timeline {end.timeline},"
            " with which the log ends"
        )
    index = lines.index(end.timeline)
    left_at, successor = ancestors[index].left_at, lines[index + 1]
    if end.end < left_at:
        return Next(end.timeline, end.end, history=False)
    if successor != end.timeline + 1:
        raise ShippingRefused(
            f"timeline {successor} follows {end.timeline}: a restore looks for timelines one by"
            " one, and would not find it. A new log and a base backup are needed"
        )
    return Next(successor, segment_start(left_at, end.segment_log2), history=True)
