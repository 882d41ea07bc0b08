"""The block codec: golden bytes, round trips, and every way a block can be wrong."""

from __future__ import annotations

import random
import struct
from array import array
from pathlib import Path

import logservice_wire.bounds as wire_bounds
import pytest
from hypothesis import given
from hypothesis import strategies as st
from logservice_wire.block import (
    HEADER_BYTES,
    Block,
    encode_block,
    encoded_size,
    peek_block,
    validate_block,
)
from logservice_wire.bounds import BlockBounds
from logservice_wire.columns import ascending
from logservice_wire.errors import (
    CodecMissing,
    CorruptBlock,
    InvalidArgument,
    LogServiceError,
    TooLarge,
)

import logservice.bounds as server_bounds
from tests.resealed import resealed

GOLDEN_RECORDS = [b"put a=1", b"", b"del b"]
GOLDEN_TIME_US = 1_700_000_000_123_456
GOLDEN = bytes.fromhex(
    "424c4b31 01 00 0000 03000000 20000000 bb549816 00000000 40222018240a0600"
    "00000000 07000000 07000000 0c000000"
    "70757420613d31 64656c2062 00000000"
)


def with_offsets(*offsets: int, values: bytes) -> bytes:
    count = len(offsets) - 1
    column = array("i", offsets).tobytes()
    column += b"\0" * (-len(column) & 7)
    body = column + values + b"\0" * (-len(values) & 7)
    return resealed(
        struct.pack("<IBBHIIIIq", 0x314B4C42, 1, 0, 0, count, len(body), 0, 0, 5) + body
    )


def test_golden_block() -> None:
    assert encode_block(GOLDEN_RECORDS, GOLDEN_TIME_US).hex() == GOLDEN.hex()
    block = Block.parse(GOLDEN)
    assert block.records() == GOLDEN_RECORDS
    assert block.timestamp_us == GOLDEN_TIME_US


def test_the_document_shows_the_golden_block() -> None:
    assert examples()[0] == GOLDEN


def examples() -> list[bytes]:
    """The worked examples of the document."""
    text = (Path(__file__).parents[2] / "docs/formats/block.md").read_text()
    fenced = [part.splitlines() for part in text.split("```") if part.startswith("\n0000")]
    dumps = [[line.split("|")[0].split(None, 1)[1] for line in part[1:]] for part in fenced]
    return [bytes.fromhex("".join(dump)) for dump in dumps]


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=50), st.integers(0, 2**62))
def test_round_trip(records: list[bytes], timestamp_us: int) -> None:
    data = encode_block(records, timestamp_us)
    assert len(data) == encoded_size(len(records), sum(map(len, records)))
    assert len(data) % 8 == 0
    assert validate_block(data) == peek_block(data) == len(records)
    block = Block.parse(memoryview(data))
    assert len(block) == block.record_count == len(records)
    assert block.records() == records
    assert bytes(block.columns().values.data) == b"".join(records)
    assert block.timestamp_us == timestamp_us
    for start in range(len(records) + 1):
        assert block.records(start) == records[start:]
        assert block.records(start, start + 2) == records[start : start + 2]
    assert [block.record(number) for number in range(len(records))] == records


def test_record_outside_the_block() -> None:
    block = Block.parse(GOLDEN)
    for number in (-1, 3):
        with pytest.raises(IndexError):
            block.record(number)


def test_every_flipped_bit_is_noticed() -> None:
    for position in range(len(GOLDEN)):
        for bit in range(8):
            broken = bytearray(GOLDEN)
            broken[position] ^= 1 << bit
            with pytest.raises(LogServiceError):
                validate_block(bytes(broken))


def test_every_wrong_length_is_noticed() -> None:
    for size in range(len(GOLDEN)):
        with pytest.raises(CorruptBlock):
            validate_block(GOLDEN[:size])
    with pytest.raises(CorruptBlock):
        validate_block(GOLDEN + b"\0" * 8)


@pytest.mark.parametrize(
    ("offsets", "values"),
    [
        ((1, 2, 4), b"abcd"),
        ((0, 3, 2, 4), b"abcd"),
        ((0, -1, 4), b"abcd"),
        ((0, 5, 4), b"abcd"),
        ((0, 2, 12), b"abcd"),
        ((0, 2, 4), b"abcd" + b"\0" * 8),
        ((0, 2, 3), b"abcd"),
        ((0, -(2**31)), b""),
        ((0, 2**31 - 1), b"abcd"),
    ],
)
def test_bad_offsets_with_a_good_checksum(offsets: tuple[int, ...], values: bytes) -> None:
    with pytest.raises(CorruptBlock):
        validate_block(with_offsets(*offsets, values=values))


@pytest.mark.parametrize(
    ("position", "value"), [(4, 3), (4, 255), (5, 1), (6, 1), (6, 8), (7, 0x80), (20, 1), (23, 1)]
)
def test_inv_block_new_an_unknown_form_is_too_new_and_damage_is_damage(
    position: int, value: int
) -> None:
    """INV-BLOCK-NEW: the checksum tells a block of a newer program from a damaged one."""
    newer = bytearray(GOLDEN)
    newer[position] = value
    with pytest.raises(CodecMissing, match="too new for this program; upgrade this program"):
        validate_block(resealed(bytes(newer)))
    with pytest.raises(CorruptBlock, match="checksum"):
        validate_block(bytes(newer))


@pytest.mark.parametrize("count", [2, 4, 5, 1000, 2**32 - 1])
def test_wrong_record_count(count: int) -> None:
    broken = bytearray(GOLDEN)
    broken[8:12] = struct.pack("<I", count)
    with pytest.raises((CorruptBlock, TooLarge)):
        validate_block(resealed(bytes(broken)))


def test_padding_must_be_zero() -> None:
    odd = encode_block([b"abc", b"d"], 0)
    for position in (HEADER_BYTES + 12, len(odd) - 1):
        broken = bytearray(odd)
        broken[position] = 1
        with pytest.raises(CorruptBlock, match="padding"):
            validate_block(resealed(bytes(broken)))


def test_an_empty_block_is_an_invalid_argument() -> None:
    with pytest.raises(InvalidArgument):
        encode_block([], 0)
    with pytest.raises(InvalidArgument):
        validate_block(with_offsets(0, values=b""))


def test_limits() -> None:
    small = BlockBounds(records_max=2, bytes_max=64)
    assert validate_block(encode_block([b"a", b"b"], 0, bounds=small), bounds=small) == 2
    with pytest.raises(TooLarge) as caught:
        encode_block([b"a"] * 3, 0, bounds=small)
    assert caught.value.metadata == {"name": "block_records", "value": "3", "limit": "2"}
    with pytest.raises(TooLarge):
        encode_block([b"a" * 100], 0, bounds=small)
    with pytest.raises(TooLarge):
        validate_block(encode_block([b"a"] * 3, 0), bounds=BlockBounds(records_max=2))
    with pytest.raises(TooLarge):
        validate_block(encode_block([b"a" * 100], 0), bounds=small)


def test_the_largest_record_fits_and_one_byte_more_does_not() -> None:
    record = bytes(wire_bounds.RECORD_BYTES_MAX)
    assert validate_block(encode_block([record], 0)) == 1
    with pytest.raises(TooLarge):
        encode_block([bytes(wire_bounds.BLOCK_BYTES_MAX - HEADER_BYTES - 7)], 0)


def test_the_largest_count() -> None:
    records = [b""] * wire_bounds.BLOCK_RECORDS_MAX
    assert validate_block(encode_block(records, 0)) == wire_bounds.BLOCK_RECORDS_MAX


def test_ascending_agrees_with_sorting() -> None:
    generator = random.Random(7)
    pool = [0, 1, 2, 3, 2**30, 2**31 - 1, -1, -(2**31)]
    for _ in range(20_000):
        numbers = [generator.choice(pool) for _ in range(generator.randrange(1, 7))]
        expected = min(numbers) >= 0 and numbers == sorted(numbers)
        assert ascending(memoryview(array("i", numbers).tobytes())) == expected, numbers


def test_client_and_server_have_the_same_limits() -> None:
    others = ("SESSION_WINDOW", "HOLD_TTL_S_MIN")
    # The server reads what an archive is bound by from the wire package itself.
    names = [
        name
        for name in dir(wire_bounds)
        if (name.endswith("_MAX") and not name.startswith("ARCHIVE_")) or name in others
    ]
    assert len(names) == 15
    hakeepers = {"REPLAYED_PER_SERVICE_MAX": "HAKEEPER_REPLAYED_PER_SERVICE_MAX"}
    for name in names:
        ours = hakeepers.get(name, name)
        assert getattr(wire_bounds, name) == getattr(server_bounds, ours), name
