"""JobRecord: what is remembered of a job's epochs, joined from all attempts at them.

Theory of operation. Several attempts send the same block, die before they hear an answer, or come
too late. For the history of the log that is one append: it began when the first of them began, its
outcome is the best that any of them heard, and it had failed for certain only if it had for all
(`EpochRecord.appends`). Attempts that began after a later epoch was open count only if they
succeeded, which is wrong: whoever is late appends nothing, so a block that nobody else sent is of
an append that has failed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from logservice.sim.clients.job_blocks import Work
from logservice.sim.history import Append, Outcome

ANY_EPOCH: Final = -1
"""The writer's epoch of a block that was sent under several, and nobody heard which one served."""


@dataclass(slots=True)
class Sent:
    """One attempt at a block. `late`: a later epoch was known to be open when it began."""

    invoked: float
    writer_epoch: int
    late: bool
    returned: float = math.inf
    outcome: Outcome = Outcome.UNKNOWN
    lsn: int = 0
    duplicate: bool = False


@dataclass(slots=True)
class EpochRecord:
    """One epoch of one name. `blocks`: by rows and number, what was sent."""

    name: str
    epoch: int
    works: dict[str, Work] = field(default_factory=dict)
    """By rows: what attempts wanted it to be."""
    begun: set[str] = field(default_factory=set)
    """The rows with which somebody began to open it."""
    rows: str = ""
    """Those that it was opened with."""
    stamp_us: int | None = None
    proposed_us: set[int] = field(default_factory=set)
    session: int = 0
    nonce: bytes = b""
    opened_s: float = math.inf
    """When somebody knew that it is open."""
    heard: int = 0
    """So many of its blocks are in the log, as somebody was told."""
    complete: bool = False
    blocks: dict[tuple[str, int], list[Sent]] = field(default_factory=dict)

    @property
    def work(self) -> Work:
        """What it was opened as."""
        return self.works[self.rows]

    @property
    def begun_blocks(self) -> int:
        """The highest number that anybody began to send."""
        return max((number for _, number in self.blocks), default=0)

    def lsn_of(self, number: int) -> int:
        """Where a block is, 0 when nobody was told."""
        sent = self.blocks.get((self.rows, number), ())
        return next((one.lsn for one in sent if one.outcome is Outcome.OK), 0)

    def appends(self) -> Iterator[tuple[Append, int]]:
        """All its blocks that were sent, each as one append, with its writer's epoch."""
        for (rows, number), sent in sorted(self.blocks.items()):
            block = self.works[rows].blocks[number - 1]
            stream = f"{self.name}:{self.epoch}{rows}"
            counts = [one for one in sent if not one.late or one.outcome is Outcome.OK]
            outcome, returned, lsn = Outcome.FAILED, max(one.invoked for one in sent), 0
            known = [one for one in counts if one.outcome is Outcome.OK]
            if known:
                outcome, lsn = Outcome.OK, known[0].lsn
                returned = min(one.returned for one in known)
            elif any(one.outcome is Outcome.UNKNOWN for one in counts):
                outcome = Outcome.UNKNOWN
            invoked = min(one.invoked for one in counts or sent)
            yield (
                Append(
                    self.name,
                    block.batch,
                    block.count,
                    invoked,
                    max(invoked, returned),
                    outcome,
                    lsn,
                    stream,
                    number,
                ),
                _writer_epoch(counts),
            )


def _writer_epoch(sent: list[Sent]) -> int:
    """Under which the block can have been appended."""
    first = [one for one in sent if one.outcome is Outcome.OK and not one.duplicate]
    maybe = first or [one for one in sent if one.outcome is Outcome.UNKNOWN]
    epochs = {one.writer_epoch for one in maybe}
    return epochs.pop() if len(epochs) == 1 else ANY_EPOCH


@dataclass(slots=True)
class Forked:
    """A log went on as another history: it began then, and was known to have."""

    began_s: float
    known_s: float = math.inf


@dataclass(slots=True)
class JobHistory:
    """Everything about the jobs of one log."""

    epochs: list[EpochRecord] = field(default_factory=list)
    forks: list[Forked] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    """What an attempt saw that must not be."""
    stamps: set[tuple[str, int]] = field(default_factory=set)
    """(batch, stamp) of jobs' blocks, as readers saw them."""
    names: dict[str, int] = field(default_factory=dict)
    """Of jobs, with the newest epoch."""
