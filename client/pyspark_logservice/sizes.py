"""Sizes: about how many bytes lie between two LSNs, from samples.

Theory of operation. The service knows LSNs, and not how long records are; to count the bytes of a
range is to read it. So a few short reads along the range each say how many bytes an LSN has there,
and what lies around one is taken to be as dense. An `Outline` of a range
is what came of that: LSNs, and the bytes up to them. The estimate is exact for records of one size.
It decides how much work goes into a task or a micro-batch, never which records are read.

A gap has no bytes. A sample counts whole blocks by the part that lies behind its LSN.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from logservice_client.read_result import Records
from logservice_client.sync import SyncShard
from logservice_wire.errors import BeyondTail, Truncated

SAMPLE_BYTES: Final = 64 * 1024
"""Bytes of one sample: a few blocks of a database's commits, and cheap to send. One block always
comes, which may be longer."""

SAMPLES: Final = 8
"""Parts of a range that have a sample of their own: where sizes change, an eighth is wrong."""

Sample = Callable[[int], tuple[float, int]]
"""The bytes of blocks from an LSN on, and the LSN behind what was counted."""


@dataclass(frozen=True, slots=True)
class Outline:
    """`bytes_to[i]`: about how many bytes lie from the beginning to before ``lsns[i]``."""

    lsns: Sequence[int]
    bytes_to: Sequence[float]

    @property
    def total(self) -> float:
        """Bytes of the whole range."""
        return self.bytes_to[-1]

    def lsn_at(self, size: float) -> int:
        """The LSN up to which there are about `size` bytes."""
        after = min(bisect_right(self.bytes_to, size), len(self.lsns) - 1)
        low, high = self.lsns[after - 1], self.lsns[after]
        between = self.bytes_to[after] - self.bytes_to[after - 1]
        if between <= 0:
            return high
        share = min(1.0, max(0.0, (size - self.bytes_to[after - 1]) / between))
        return low + int((high - low) * share)


def sampler(log: SyncShard, timeout_s: float) -> Sample:
    """Samples of a log."""

    def sample(lsn: int) -> tuple[float, int]:
        try:
            result = log.read(lsn, max_bytes=SAMPLE_BYTES, timeout=timeout_s)
        except Truncated as error:
            # Whoever reads finds that out, too; what is gone has no bytes.
            return 0.0, max(lsn + 1, error.number("first_lsn"))
        except BeyondTail:
            # Another history, shorter than what was planned: that is for the tasks to say.
            return 0.0, lsn + 1
        size = 0.0
        for item in result.items:
            if isinstance(item, Records):
                size += len(item.block.data) * item.record_count / item.block.record_count
        return size, max(lsn + 1, result.next_lsn)

    return sample


def outline(sample: Sample, start: int, end: int, enough: float) -> Outline:
    """The range ``start <= lsn < end`` in equal parts, with a sample in the middle of each; with
    those at its two ends only, when by both of them it has far less than `enough` bytes.
    """
    first, behind = _density(sample, start)
    if behind >= end:
        return Outline((start, end), (0.0, first * (end - start)))
    last, _ = _density(sample, end - 1)
    if max(first, last) * (end - start) < enough / 2:
        return Outline((start, end), (0.0, (first + last) / 2 * (end - start)))
    count = min(SAMPLES, end - start)
    lsns = [start + (end - start) * number // count for number in range(count + 1)]
    bytes_to = [0.0]
    for number in range(count):
        density, _ = _density(sample, (lsns[number] + lsns[number + 1]) // 2)
        bytes_to.append(bytes_to[-1] + density * (lsns[number + 1] - lsns[number]))
    return Outline(lsns, bytes_to)


def reach(sample: Sample, start: int, end: int, budget: int) -> Outline:
    """From `start` on until there are about `budget` bytes, or to `end`; in strides of a part of
    the budget. A stride is sampled at both ends and judged by the denser one, so that records that
    get longer do not make it many times as large.
    """
    lsns, bytes_to = [start], [0.0]
    density, behind = _density(sample, start)
    while lsns[-1] < end and bytes_to[-1] < budget and len(lsns) <= SAMPLES:
        lsn = lsns[-1]
        stride = _stride(budget, density) or behind - lsn
        last = min(lsn + stride, end) - 1
        there, behind_there = _density(sample, last) if last > lsn else (density, behind)
        if there > 2 * density:
            stride = min(stride, _stride(budget, there))
        lsns.append(min(lsn + stride, end))
        bytes_to.append(bytes_to[-1] + max(density, there) * (lsns[-1] - lsn))
        if lsns[-1] == last + 1:
            density, behind = there, max(behind_there, lsns[-1] + 1)
        elif lsns[-1] < end:
            density, behind = _density(sample, lsns[-1])
    return Outline(lsns, bytes_to)


def _density(sample: Sample, lsn: int) -> tuple[float, int]:
    """Bytes for each LSN there, and the LSN up to which that is known."""
    size, behind = sample(lsn)
    return size / (behind - lsn), behind


def _stride(budget: int, density: float) -> int:
    """LSNs of a stride; 0 where there are no bytes to go by."""
    return max(1, int(budget / SAMPLES / density)) if density > 0 else 0
