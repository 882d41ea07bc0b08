"""What reading returns: runs of LSNs, each records or a typed gap.

Blocks arrive as they were appended and stay opaque bytes until records are asked for; each is
validated (CRC, offsets) when it arrives, so that damage between the leader and here is noticed. A
block that begins below the LSN asked for is shown from that LSN on.

A wide block (version 2) is opened when its contents are asked for, and what that takes is given
back with them. So one that cannot be opened is the error of that item (CorruptBlock, CodecMissing)
and not of the answer: a reader may go on behind it. Who asks a whole answer for its records is
refused what opened would take more than ANSWER_PLAIN_BYTES_MAX; item by item it is at most
BLOCK_PLAIN_BYTES_MAX at a time.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from logservice_wire.block import Block
from logservice_wire.columns import Columns
from logservice_wire.errors import CodecMissing, CorruptBlock, Discontinuity, TooLarge, too_new
from logservice_wire.read_answer import ReadAnswer, Run
from logservice_wire.v1 import log_pb2
from logservice_wire.value import value

from logservice_client.bounds import ANSWER_PLAIN_BYTES_MAX

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow


class GapReason(enum.Enum):
    """Why LSNs carry no records."""

    FENCED = log_pb2.GAP_REASON_FENCED
    """Appended with an old writer epoch, or with none."""
    WRONG_EXPECTED_LSN = log_pb2.GAP_REASON_WRONG_EXPECTED_LSN
    SEQUENCE = log_pb2.GAP_REASON_SEQUENCE
    """A duplicate, a gap or an expired session."""
    CORRUPT = log_pb2.GAP_REASON_CORRUPT
    """An entry that no correct leader makes."""
    UNKNOWN = -1
    """A reason that is newer than this client."""

    @classmethod
    def _missing_(cls, value: object) -> GapReason:
        # Whatever the reason, the LSNs hold no record: a reader goes on behind them.
        return cls.UNKNOWN


@value
class Gap:
    """LSNs ``first_lsn <= lsn < next_lsn`` that no record has or ever will have."""

    first_lsn: int
    record_count: int
    term: int
    reason: GapReason
    append_time_us: int = 0
    """When what was refused there came into the log; 0 when that is not known."""

    @property
    def next_lsn(self) -> int:
        """The LSN behind the gap."""
        return self.first_lsn + self.record_count

    @property
    def reason_number(self) -> int:
        """The number of log.proto's GapReason, for a copy. Raises CodecMissing for a reason that is
        newer than this program: with another one the copy would be another history.
        """
        if self.reason is GapReason.UNKNOWN:
            raise gap_too_new(self.first_lsn, self.record_count)
        number: int = self.reason.value
        return number

    def until(self, end_lsn: int) -> Gap:
        """The part below `end_lsn`."""
        count = min(self.record_count, end_lsn - self.first_lsn)
        return Gap(self.first_lsn, count, self.term, self.reason, self.append_time_us)


@value
class Records:
    """Consecutive records of one block. `skipped`: records of the block that lie before."""

    first_lsn: int
    record_count: int
    term: int
    block: Block
    skipped: int
    append_time_us: int = 0
    """When the leader put the block into the log, microseconds since 1970. It grows from block to
    block, but for those that share an entry. 0: none, from before cluster version 2."""

    @property
    def next_lsn(self) -> int:
        """The LSN behind the last record."""
        return self.first_lsn + self.record_count

    def until(self, end_lsn: int) -> Records:
        """The part below `end_lsn`."""
        count = min(self.record_count, end_lsn - self.first_lsn)
        return Records(
            self.first_lsn, count, self.term, self.block, self.skipped, self.append_time_us
        )

    @property
    def whole(self) -> bool:
        """Whether these are all records of the block."""
        return self.record_count == self.block.record_count

    @property
    def plain(self) -> bool:
        """Whether it is a whole block of version 1: all its values are the block's."""
        return self.whole and not self.block.wide

    @property
    def timestamp_us(self) -> int:
        """When the client made the block, microseconds since 1970."""
        return self.block.timestamp_us

    def records(self) -> list[bytes]:
        """The records; the i-th has LSN ``first_lsn + i``. Raises as `columns`."""
        if self.block.wide:
            return self.columns().records()
        return self.block.records(self.skipped, self.skipped + self.record_count)

    def columns(self) -> Columns:
        """The records with their keys, headers and times, if the block has such. A compressed block
        is opened anew by each call.

        Raises CorruptBlock for a block that is not what it says, CodecMissing for one that is
        compressed with what this program has no package for.
        """
        try:
            return self.block.columns().part(self.skipped, self.skipped + self.record_count)
        except CorruptBlock as error:
            raise self.located(error) from error

    def located(self, error: CorruptBlock) -> CorruptBlock:
        """What is wrong with the block, and where in the log: whoever reads on begins behind it."""
        return corrupt_at(self.first_lsn, self.record_count, error)

    def to_arrow(self) -> pyarrow.RecordBatch:
        """Columns lsn, term, timestamp, value, key, headers; those of the block are not copied,
        unless it is compressed. Needs the [arrow] extra. Raises as `columns`.
        """
        from logservice_client.arrow import record_batch

        return record_batch(self)


@dataclass(frozen=True, slots=True)
class ReadResult:
    """One answer to a read.

    items: runs in order, without holes between them. next_lsn: where to go on; the LSN asked for
    when there is nothing yet. first_lsn, applied_lsn: the oldest and newest readable LSN then.
    end_lsn: of a closed log, the LSN behind its last record; None while it is open. There is
    nothing more to read when next_lsn is end_lsn.
    """

    items: tuple[Records | Gap, ...]
    next_lsn: int
    first_lsn: int
    applied_lsn: int
    end_lsn: int | None = None

    @property
    def blocks(self) -> tuple[Records, ...]:
        """The items that are records."""
        return tuple(item for item in self.items if isinstance(item, Records))

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """The items that are gaps."""
        return tuple(item for item in self.items if isinstance(item, Gap))

    def records(self) -> list[bytes]:
        """All records in order; gaps are left out. Raises as `Records.columns`, and TooLarge when
        its blocks opened are more than ANSWER_PLAIN_BYTES_MAX: then take the items one by one.
        """
        return [record for block in self._openable() for record in block.records()]

    def to_arrow(self) -> pyarrow.Table:
        """All records in order, a chunk for each block; columns are as in `Records.to_arrow`. Needs
        the [arrow] extra. Raises as `records`.
        """
        from logservice_client.arrow import table

        return table(self._openable())

    def to_pandas(self) -> pandas.DataFrame:
        """The same as a DataFrame whose columns are Arrow's. Needs the [arrow] extra and pandas."""
        from logservice_client.arrow import pandas_frame

        frame: pandas.DataFrame = pandas_frame(self._openable())
        return frame

    def to_polars(self) -> polars.DataFrame:
        """The same as a DataFrame of Polars, which takes Arrow's bytes over. Needs the [polars]
        extra.
        """
        from logservice_client.arrow import polars_frame

        frame: polars.DataFrame = polars_frame(self._openable())
        return frame

    def _openable(self) -> tuple[Records, ...]:
        blocks = self.blocks
        size = sum(item.block.plain_bytes for item in blocks)
        if size > ANSWER_PLAIN_BYTES_MAX:
            raise TooLarge(
                "the blocks of this answer are too much at once: take its items one by one",
                name="answer_plain_bytes",
                value=size,
                limit=ANSWER_PLAIN_BYTES_MAX,
            )
        return blocks


@dataclass(frozen=True, slots=True)
class LsnAtTime:
    """Where a log stood at a time. truncated: `lsn` is the oldest readable one, and records that
    are truncated may have had that time or a later one, too.
    """

    lsn: int
    truncated: bool


Answered = ReadAnswer | log_pb2.ReadResponse


def result_of(response: Answered, lsn: int) -> ReadResult:
    """The answer to a read from `lsn`; raises CorruptBlock when a block is damaged, CodecMissing
    when a newer program made it, Discontinuity when an LSN is left out.
    """
    return ReadResult(
        items=tuple(runs_of(response, lsn)),
        next_lsn=response.next_lsn,
        first_lsn=response.position.first_lsn,
        applied_lsn=response.position.applied_lsn,
        end_lsn=response.end_lsn or None,
    )


def runs_of(response: Answered, lsn: int, *, holes: bool = False) -> list[Records | Gap]:
    """The runs of an answer that should go on at `lsn`, without what lies below. `holes`: LSNs may
    be left out. Raises CorruptBlock, CodecMissing and Discontinuity (INV-CLIENT-READ).
    """
    items: list[Records | Gap] = []
    for run in response.blocks:
        if run.first_lsn + run.record_count <= lsn or (run.first_lsn > lsn and not holes):
            raise _discontinuity(lsn, run.first_lsn)
        item = item_of(run, lsn)
        items.append(item)
        lsn = item.next_lsn
    if response.next_lsn > lsn and not holes:
        raise _discontinuity(lsn, response.next_lsn)
    return items


def _discontinuity(asked: int, found: int) -> Discontinuity:
    return Discontinuity(
        f"an answer goes on at LSN {found}, and not at {asked}", asked=asked, found=found
    )


def corrupt_at(first_lsn: int, count: int, error: CorruptBlock) -> CorruptBlock:
    """The same, with the LSNs that cannot be shown: whoever reads on begins behind them."""
    detail = error.metadata.get("detail", "")
    return CorruptBlock(detail=detail, first_lsn=first_lsn, last_lsn=first_lsn + count - 1)


def too_new_at(first_lsn: int, count: int, error: CodecMissing) -> CodecMissing:
    """The same, with the LSNs that this program cannot open."""
    where = {"first_lsn": first_lsn, "last_lsn": first_lsn + count - 1}
    return CodecMissing(error.message, **error.metadata, **where)


def gap_too_new(first_lsn: int, count: int) -> CodecMissing:
    """The error for who must know why LSNs have no records, and does not know that reason."""
    last_lsn = first_lsn + count - 1
    of = f"the gap at LSN {first_lsn}"
    return too_new("an unknown reason", of, first_lsn=first_lsn, last_lsn=last_lsn)


def item_of(run: Run, lsn: int) -> Records | Gap:
    """One run, without the LSNs below `lsn`. Raises CorruptBlock, CodecMissing."""
    first_lsn, in_block = run.first_lsn, run.record_count
    skipped = max(0, lsn - first_lsn)
    first_lsn, count = first_lsn + skipped, in_block - skipped
    if run.gap != log_pb2.GAP_REASON_NONE:
        return Gap(first_lsn, count, run.term, GapReason(run.gap), run.append_time_us)
    try:
        block = Block.parse(run.block)
    except CorruptBlock as error:
        raise corrupt_at(first_lsn, count, error) from error
    except CodecMissing as error:
        raise too_new_at(first_lsn, count, error) from error
    if block.record_count != in_block:
        raise CorruptBlock(
            detail=f"{block.record_count} records in a block of {in_block} LSNs",
            first_lsn=first_lsn,
            last_lsn=first_lsn + count - 1,
        )
    return Records(first_lsn, count, run.term, block, skipped, run.append_time_us)
