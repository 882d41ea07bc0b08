"""Blocks of a task: where they end, what stands for them, what is refused."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from logservice_wire.block import Block
from logservice_wire.bounds import RECORD_BYTES_MAX
from logservice_wire.errors import TooLarge
from pyspark_logservice.writing import blocks as module
from pyspark_logservice.writing import rows as rows_module
from pyspark_logservice.writing.blocks import Blocks
from pyspark_logservice.writing.columns import ColumnError

OPEN: list[Blocks] = []

CONTENT = "fc30d2cec9f12d01797d23974055f4f36f84eccbf974e75c19c38e6705003399"
"""Of the rows below, as it was before blocks had other columns."""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module, "BLOCK_VALUE_BYTES", 40)
    monkeypatch.setattr(module, "BLOCK_RECORDS", 7)
    yield
    while OPEN:
        OPEN.pop().close()


def opened(routing: str = "", logs: Any = None, only: int = 1) -> Blocks:
    OPEN.append(Blocks(routing, logs or {}, only))
    return OPEN[-1]


def batches(rows: Sequence[bytes], draw: random.Random) -> Iterator[pa.RecordBatch]:
    """The rows in batches of any size, empty and sliced ones too."""
    rest = list(rows)
    while rest:
        size = draw.choice([0, 1, 2, 5, 30])
        taken, rest = rest[:size], rest[size:]
        column = pa.array([b"before", *taken, b"behind"], pa.binary()).slice(1, len(taken))
        yield pa.RecordBatch.from_arrays([column], ["value"])


def made(rows: Sequence[bytes], seed: int = 0) -> Blocks:
    blocks = opened()
    for batch in batches(rows, random.Random(seed)):
        blocks.add(batch)
    return blocks


def shown(blocks: Blocks, log: int = 1) -> list[list[bytes]]:
    return [
        list(Block.parse(blocks.block(log, number, 5)).records())
        for number in range(blocks.count(log))
    ]


def greedy(rows: Sequence[bytes]) -> list[list[bytes]]:
    found: list[list[bytes]] = [[]]
    for row in rows:
        last = found[-1]
        if last and (sum(map(len, last)) + len(row) > 40 or len(last) == 7):
            found.append([])
        found[-1].append(row)
    return found


@pytest.mark.parametrize("seed", range(30))
def test_inv_spark_cut_batches_do_not_show(seed: int) -> None:
    """INV-SPARK-CUT, and that a block is as full as it may be."""
    draw = random.Random(seed)
    rows = [draw.randbytes(draw.choice([0, 0, 1, 8, 20, 39, 40, 41, 100])) for _ in range(80)]
    blocks, others = made(rows, seed), made(rows, seed + 1000)
    content = blocks.content()
    assert content == others.content()
    assert shown(blocks) == shown(others) == greedy(rows)
    assert blocks.records(1) == 80
    assert blocks.block(1, 0, 77) == others.block(1, 0, 77)


def test_inv_spark_content_tells_apart_what_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-SPARK-CONTENT: rows, their order, their number, where one ends, their log, the cut."""
    rows = [b"a", b"bc", b"d", b"", b"e" * 30, b"f" * 30]
    others = (
        rows[::-1],
        rows[:-1],
        [*rows, b""],
        [b"ab", b"c", *rows[2:]],
        [b"x", *rows[1:]],
        [],
    )
    contents = [made(one).content() for one in (rows, *others)]
    elsewhere = opened(only=2)
    for batch in batches(rows, random.Random(0)):
        elsewhere.add(batch)
    contents.append(elsewhere.content())
    monkeypatch.setattr(module, "BLOCK_RECORDS", 2)
    contents.append(made(rows).content())
    assert len(set(contents)) == len(contents)
    assert {len(content) for content in contents} == {32}


def test_inv_spark_content_of_values_alone_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A micro-batch that a release without other columns has begun can be finished."""
    monkeypatch.undo()
    blocks = opened(only=5)
    blocks.add(pa.RecordBatch.from_pydict({"value": [b"one", b"", b"two" * 400_000, b"x"]}))
    blocks.add(pa.RecordBatch.from_pydict({"value": ["text", "\u00e4"]}))
    assert blocks.content().hex() == CONTENT
    assert blocks.count(5) == 3


def test_rows_by_log() -> None:
    blocks = opened("name", {"b": 9, "a": 4}, 4)
    names = ["a", "b", "b", "a", "b"]
    values = [b"0", b"1", b"2", b"3", b"4"]
    blocks.add(pa.RecordBatch.from_pydict({"name": names, "value": values}))
    blocks.add(pa.RecordBatch.from_pydict({"name": ["a"], "value": ["text"]}))
    blocks.content()
    assert blocks.logs() == (4, 9)
    assert (shown(blocks, 4), shown(blocks, 9)) == ([[b"0", b"3", b"text"]], [[b"1", b"2", b"4"]])
    assert (blocks.count(5), blocks.records(9)) == (0, 3)


def test_nothing_is_no_block() -> None:
    blocks = made([])
    blocks.content()
    assert (blocks.logs(), blocks.count(1)) == ((), 0)


@pytest.mark.parametrize(
    ("column", "rows", "says"),
    [
        ("shard", [1, None], "column 'shard': None is none of the logs"),
        ("shard", [1, 3], "column 'shard': 3 is none of the logs"),
        ("name", ["a", ""], "column 'name': '' is none of the logs"),
    ],
)
def test_a_log_that_is_not_listed(column: str, rows: list[Any], says: str) -> None:
    blocks = opened(column, {1: 1, "a": 1})
    with pytest.raises(ColumnError, match=says):
        blocks.add(pa.RecordBatch.from_pydict({column: rows, "value": [b"x", b"y"]}))


def test_values_that_are_no_records(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ColumnError, match="null in a row"):
        opened().add(pa.RecordBatch.from_pydict({"value": [b"x", None]}))
    assert RECORD_BYTES_MAX > 8_000_000
    monkeypatch.setattr(rows_module, "RECORD_BYTES_MAX", 3)
    blocks = opened()
    blocks.add(pa.RecordBatch.from_pydict({"value": ["äb"]}))
    with pytest.raises(TooLarge, match="4 bytes in a row"):
        blocks.add(pa.RecordBatch.from_pydict({"value": ["x", "äöx"[:2]]}))


def test_beyond_memory_blocks_are_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SPOOL_BYTES", 100)
    rows = [b"%030d" % number for number in range(50)]
    blocks = made(rows)
    assert blocks._spool._rolled  # type: ignore[attr-defined]
    blocks.content()
    assert shown(blocks) == [[row] for row in rows]
    blocks.close()
    with pytest.raises(ValueError, match="closed"):
        blocks.block(1, 0, 0)
