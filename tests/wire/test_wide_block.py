"""Blocks of version 2: round trips of all columns, cuts without opening, every way one can lie."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import lz4.block
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from logservice_wire import codecs
from logservice_wire.block import (
    HEADER_BYTES,
    Block,
    Flag,
    encode_block,
    is_wide,
    peek_block,
    validate_block,
    wrapped,
)
from logservice_wire.bounds import (
    BLOCK_BYTES_MAX,
    BLOCK_HEADERS_MAX,
    BLOCK_PLAIN_BYTES_MAX,
    BLOCK_RATIO_MAX,
    BLOCK_RECORDS_MAX,
    BlockBounds,
)
from logservice_wire.codecs import Codec
from logservice_wire.column_block import Binary, Parts, block_of_parts, encode_columns
from logservice_wire.columns import packed
from logservice_wire.errors import (
    CodecMissing,
    CorruptBlock,
    InvalidArgument,
    LogServiceError,
    TooLarge,
)

from tests.resealed import resealed
from tests.wire.test_block import examples

SECOND_AT = HEADER_BYTES
PACKED_AT = HEADER_BYTES + 16
NO_FLAGS = Flag(0)
CODECS = (None, "zstd", "lz4")
VALUES = [b"put a=1", b"", b"del b", b"x" * 100]
KEYS = [b"a", None, b"", b"b"]
HEADERS = [{"trace": b"1", "né": b""}, {}, {"": b"x"}, {}]
TIMES = [5, -1, 2**63 - 1, -(2**63)]

record = st.tuples(
    st.binary(max_size=12),
    st.none() | st.binary(max_size=5),
    st.dictionaries(st.text(max_size=4), st.binary(max_size=4), max_size=3),
    st.integers(-(2**63), 2**63 - 1),
)


def whole(codec: str | None = None, **left_out: None) -> bytes:
    columns: dict[str, Any] = {"keys": KEYS, "headers": HEADERS, "times_us": TIMES}
    return encode_columns(VALUES, 77, codec=codec, **{**columns, **left_out})


def told(block: Block) -> list[tuple[Any, ...]]:
    found = block.columns()
    return list(zip(found.records(), found.keys(), found.headers(), found.times_us(), strict=True))


@given(st.lists(record, min_size=1, max_size=20), st.sampled_from(CODECS), st.integers(0, 7))
def test_round_trip(records: list[Any], codec: str | None, flags: int) -> None:
    """Every choice of columns; null and empty keys differ."""
    values, keys, headers, times = (list(column) for column in zip(*records, strict=True))
    shown_keys, shown_headers, shown_times = flags & 1, flags & 4, flags & 2
    data = encode_columns(
        values,
        77,
        keys=keys if shown_keys else None,
        headers=headers if shown_headers else None,
        times_us=times if shown_times else None,
        codec=codec,
    )
    assert validate_block(data) == peek_block(data) == len(values)
    assert len(data) % 8 == 0
    block = Block.parse(memoryview(data))
    assert block.wide == is_wide(data) == bool(flags or codec)
    assert block.timestamp_us == 77
    assert block.records() == values
    assert [block.record(number) for number in range(len(values))] == values
    wanted = list(
        zip(
            values,
            keys if shown_keys else [None] * len(values),
            headers if shown_headers else [{}] * len(values),
            times if shown_times else [77] * len(values),
            strict=True,
        )
    )
    assert told(block) == wanted
    for start in range(len(values)):
        for stop in range(start + 1, len(values) + 1):
            cut = Block.parse(block.cut(start, stop))
            assert told(cut) == wanted[start:stop]
            assert cut.timestamp_us == 77
            assert told(Block.parse(cut.cut(0, 1))) == wanted[start : start + 1]


def test_the_document_shows_a_wide_block() -> None:
    values, keys = [b"put a=1", b"", b"del b"], [b"a", None, b""]
    assert examples()[1] == encode_columns(values, 1_700_000_000_123_456, keys=keys)


def test_values_alone_stay_a_version_1() -> None:
    assert encode_columns(VALUES, 77) == encode_block(VALUES, 77)
    assert not is_wide(encode_columns(VALUES, 77))
    assert not is_wide(b"")


def test_a_version_1_is_cut_too() -> None:
    block = Block.parse(encode_block(VALUES, 77))
    assert block.cut(1, 3) == encode_block(VALUES[1:3], 77)
    assert block.cut(0, 4) == encode_block(VALUES, 77)


def test_nobody_opens_a_block_to_check_or_cut_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-BLOCK-OPAQUE, as far as this file goes."""
    data = whole("zstd")
    monkeypatch.setattr("logservice_wire.block.decompress", None)
    monkeypatch.setattr("logservice_wire.block.Cursor", None)
    assert validate_block(data) == 4
    assert peek_block(Block.parse(data).cut(1, 3)) == 2
    assert Block.parse(data).plain_bytes > 0
    with pytest.raises(TypeError):
        Block.parse(data).columns()


def test_opening_is_for_the_moment_and_uncompressed_columns_are_windows() -> None:
    packed_block, plain = Block.parse(whole("lz4")), Block.parse(whole())
    assert packed_block.columns() is not packed_block.columns()
    assert plain.columns() is plain.columns()
    assert plain.columns().values.data.obj is plain.data
    assert (plain.plain_bytes, packed_block.plain_bytes) == (0, plain.second.plain_bytes)


@pytest.mark.parametrize("codec", CODECS)
def test_every_flipped_bit_is_noticed(codec: str | None) -> None:
    data = whole(codec)
    for position in range(len(data)):
        for bit in range(8):
            broken = bytearray(data)
            broken[position] ^= 1 << bit
            with pytest.raises(LogServiceError):
                validate_block(bytes(broken))


@pytest.mark.parametrize("codec", CODECS)
def test_every_wrong_length_is_noticed(codec: str | None) -> None:
    data = whole(codec)
    for size in range(len(data)):
        with pytest.raises(CorruptBlock):
            validate_block(data[:size])
    with pytest.raises(CorruptBlock):
        validate_block(data + bytes(8))


@pytest.mark.parametrize("codec", CODECS)
def test_any_bytes_under_a_good_checksum_are_a_value_or_the_typed_error(codec: str | None) -> None:
    """Each byte of the block, changed; and many at once."""
    rng = random.Random(codec or "plain")
    data = whole(codec)
    refused = 0

    def tried() -> Iterator[bytearray]:
        for position in range(len(data)):
            for value in (0, 1, 0x7F, 0x80, 0xFF):
                changed = bytearray(data)
                changed[position] = value
                yield changed
        for _ in range(3000):
            changed = bytearray(data)
            for _ in range(rng.randint(1, 4)):
                changed[rng.randrange(len(changed))] = rng.randrange(256)
            yield changed

    for changed in tried():
        try:
            found = told(Block.parse(resealed(bytes(changed))))
            assert len(found) == peek_block(changed)
        except LogServiceError:
            refused += 1
    assert refused > 500


def changed(block: bytes, at: int, form: str, value: int) -> bytes:
    made = bytearray(block)
    struct.pack_into(form, made, at, value)
    return resealed(bytes(made))


@pytest.mark.parametrize(
    ("at", "form", "value", "error"),
    [
        (4, "<B", 3, CodecMissing),  # version
        (5, "<B", 3, CodecMissing),  # codec
        (6, "<H", 8, CodecMissing),  # flags
        (6, "<H", 0x8001, CodecMissing),
        (8, "<I", 0, InvalidArgument),  # records
        (8, "<I", 5, CorruptBlock),
        (8, "<I", 2**32 - 1, CorruptBlock),
        (20, "<I", 1, CorruptBlock),  # first
        (20, "<I", 2**32 - 1, CorruptBlock),
        (SECOND_AT, "<I", 3, CorruptBlock),  # records of the body
        (SECOND_AT, "<I", BLOCK_RECORDS_MAX, CorruptBlock),
        (SECOND_AT, "<I", BLOCK_RECORDS_MAX + 1, TooLarge),
        (SECOND_AT, "<I", 2**32 - 1, TooLarge),
        (SECOND_AT + 4, "<I", 0, CorruptBlock),  # bytes of the columns
        (SECOND_AT + 4, "<I", BLOCK_PLAIN_BYTES_MAX, CorruptBlock),
        (SECOND_AT + 4, "<I", BLOCK_PLAIN_BYTES_MAX + 1, TooLarge),
        (SECOND_AT + 4, "<I", 2**32 - 1, TooLarge),
        (SECOND_AT + 8, "<I", 0, CorruptBlock),  # bytes that they are here
        (SECOND_AT + 8, "<I", 2**32 - 1, CorruptBlock),
        (SECOND_AT + 12, "<I", 1, CodecMissing),  # reserved
    ],
)
@pytest.mark.parametrize("codec", CODECS)
def test_an_envelope_that_lies_is_refused_unopened(
    codec: str | None, at: int, form: str, value: int, error: type[LogServiceError]
) -> None:
    with pytest.raises(error):
        validate_block(changed(whole(codec), at, form, value))


def test_padding_behind_the_columns_is_zero() -> None:
    data = next(one for one in (whole("zstd"), whole("lz4")) if Block.parse(one).second[2] % 8)
    with pytest.raises(CorruptBlock, match="padding"):
        validate_block(changed(data, len(data) - 1, "<B", 1))


# --- bodies that are not what the envelope says ---------------------------------------------------


def numbers(*offsets: int) -> bytes:
    return packed("i", offsets)


def padded(*parts: bytes) -> bytes:
    return b"".join(part + bytes(-len(part) % 8) for part in parts)


def wide(plain: bytes, flags: Flag = NO_FLAGS, count: int = 2) -> bytes:
    return wrapped(Codec.NONE, flags, plain, len(plain), count, 0)


GOOD = (numbers(0, 1, 2), b"ab")
LIES: dict[str, Callable[[], bytes]] = {
    "fewer records than promised": lambda: wide(padded(numbers(0, 1), b"a"), count=2),
    "more records than promised": lambda: wide(padded(numbers(0, 1, 2, 3), b"abc")),
    "offsets that descend": lambda: wide(padded(numbers(0, 2, 1), b"ab")),
    "a first offset": lambda: wide(padded(numbers(1, 1, 2), b"ab")),
    "negative": lambda: wide(padded(numbers(0, -1, 2), b"ab")),
    "offsets beyond the end": lambda: wide(padded(numbers(0, 1, 2**31 - 1), b"ab")),
    "bytes behind": lambda: wide(padded(*GOOD) + bytes(8)),
    "padding": lambda: wide(padded(numbers(0, 1, 2) + b"\1\0\0\0", b"ab")),
    "no keys": lambda: wide(padded(*GOOD), Flag.KEYS),
    "keys that are not promised": lambda: wide(padded(*GOOD, b"\3", *GOOD)),
    "bits behind the last record": lambda: wide(padded(*GOOD, b"\7", *GOOD), Flag.KEYS),
    "no times": lambda: wide(padded(*GOOD), Flag.TIMES),
    "half the times": lambda: wide(padded(*GOOD, bytes(8)), Flag.TIMES),
    "no headers": lambda: wide(padded(*GOOD), Flag.HEADERS),
    "headers without contents": lambda: wide(
        padded(*GOOD, numbers(0, 1, 1), numbers(0, 1), b"a"), Flag.HEADERS
    ),
    "headers without end": lambda: wide(padded(*GOOD, numbers(0, 1, 2**31 - 1)), Flag.HEADERS),
    "headers over the limit": lambda: wide(
        padded(
            *GOOD,
            numbers(0, 1, BLOCK_HEADERS_MAX + 1),
            *[bytes(4 * (BLOCK_HEADERS_MAX + 2))] * 2,
        ),
        Flag.HEADERS,
    ),
    "a name that is not UTF-8": lambda: wide(
        padded(*GOOD, numbers(0, 1, 1), numbers(0, 1), b"\xff", numbers(0, 0)), Flag.HEADERS
    ),
    "a name that ends within a letter": lambda: wide(
        padded(*GOOD, numbers(0, 1, 2), numbers(0, 1, 2), "é".encode(), numbers(0, 0, 0)),
        Flag.HEADERS,
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_body_that_lies_is_found_out_by_the_reader_and_by_nobody_else(lie: str) -> None:
    data = LIES[lie]()
    assert validate_block(data) == 2
    with pytest.raises(CorruptBlock):
        told(Block.parse(data))


def compressed(codec: Codec, body: bytes, plain_bytes: int, count: int = 2) -> bytes:
    return wrapped(codec, Flag(0), body, plain_bytes, count, 0)


def zstd(plain: bytes, **given: Any) -> bytes:
    made: bytes = zstandard.ZstdCompressor(**given).compress(plain)
    return made


PLAIN = padded(*GOOD)
BOMBS: dict[str, Callable[[], bytes]] = {
    "zstd: a gigabyte in a frame that says so": lambda: compressed(
        Codec.ZSTD, b"\x28\xb5\x2f\xfd\xa0" + struct.pack("<I", 1 << 30) + bytes(40), len(PLAIN)
    ),
    "zstd: more than promised": lambda: compressed(Codec.ZSTD, zstd(bytes(1 << 24)), len(PLAIN)),
    "zstd: less than promised": lambda: compressed(Codec.ZSTD, zstd(PLAIN), len(PLAIN) + 8),
    "zstd: a frame that does not say how much": lambda: compressed(
        Codec.ZSTD, zstd(bytes(1 << 24), write_content_size=False), len(PLAIN)
    ),
    "zstd: two frames": lambda: compressed(Codec.ZSTD, zstd(PLAIN) + zstd(PLAIN), len(PLAIN)),
    "zstd: bytes behind the frame": lambda: compressed(Codec.ZSTD, zstd(PLAIN) + b"x", len(PLAIN)),
    "zstd: cut short": lambda: compressed(Codec.ZSTD, zstd(PLAIN)[:-1], len(PLAIN)),
    "zstd: nothing": lambda: compressed(Codec.ZSTD, b"", len(PLAIN)),
    "zstd: no frame": lambda: compressed(Codec.ZSTD, b"abcd" * 9, len(PLAIN)),
    "lz4: more than promised": lambda: compressed(
        Codec.LZ4, lz4.block.compress(bytes(1 << 20), store_size=False), len(PLAIN)
    ),
    "lz4: less than promised": lambda: compressed(
        Codec.LZ4, lz4.block.compress(PLAIN, store_size=False), len(PLAIN) + 8
    ),
    "lz4: cut short": lambda: compressed(
        Codec.LZ4, lz4.block.compress(PLAIN, store_size=False)[:-1], len(PLAIN)
    ),
    "lz4: nothing": lambda: compressed(Codec.LZ4, b"", len(PLAIN)),
    "lz4: no block": lambda: compressed(Codec.LZ4, b"\xff" * 30, len(PLAIN)),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_contents_of_another_size_are_refused_without_room_for_them(bomb: str) -> None:
    """INV-BLOCK-BOMB: the reader is told, and never has more memory than was promised."""
    data = BOMBS[bomb]()
    assert validate_block(data) == 2
    with pytest.raises(CorruptBlock):
        told(Block.parse(data))


def test_a_zstd_frame_is_judged_before_it_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-BLOCK-BOMB: the library allocates what a frame says, so nobody asks it to."""

    class Opened(Exception):
        pass

    def opened(*_: object, **__: object) -> None:
        raise Opened

    monkeypatch.setattr(zstandard, "ZstdDecompressor", opened)
    with pytest.raises(CorruptBlock, match="promised"):
        Block.parse(BOMBS["zstd: a gigabyte in a frame that says so"]()).columns()
    with pytest.raises(Opened):
        Block.parse(compressed(Codec.ZSTD, zstd(PLAIN), len(PLAIN))).columns()


# --- limits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_what_compresses_too_well_is_padded(codec: str) -> None:
    """BLOCK_RATIO_MAX: a body has at least so many bytes for its columns."""
    values = [b""] * BLOCK_RECORDS_MAX
    data = encode_columns(values, 0, codec=codec)
    second = Block.parse(data).second
    assert second.plain_bytes == 4 * BLOCK_RECORDS_MAX + 8
    assert BLOCK_RATIO_MAX * (len(data) - PACKED_AT) >= second.plain_bytes
    assert len(data) < 20_000
    assert Block.parse(data).records() == values
    # Without the padding it is refused: a million LSNs would cost nothing.
    bare = bytearray(data[: PACKED_AT + (second.packed_bytes + 7) // 8 * 8])
    if len(bare) < len(data):
        struct.pack_into("<I", bare, 12, len(bare) - HEADER_BYTES)
        with pytest.raises(CorruptBlock):
            validate_block(resealed(bytes(bare)))
    else:
        assert codec == "lz4", "its own ratio is no better"


def test_the_largest_columns_and_one_byte_more() -> None:
    """BLOCK_PLAIN_BYTES_MAX, when it is made and when it is checked."""
    room = BLOCK_PLAIN_BYTES_MAX - 8
    assert Block.parse(encode_columns([bytes(room)], 0, codec="zstd")).records() == [bytes(room)]
    for codec in CODECS:
        with pytest.raises(TooLarge) as caught:
            encode_columns([bytes(room + 1)], 0, keys=[None], codec=codec)
        assert caught.value.metadata["name"] == "block_plain_bytes"
    with pytest.raises(TooLarge):
        wrapped(Codec.ZSTD, Flag(0), b"", BLOCK_PLAIN_BYTES_MAX + 1, 1, 0)


def test_a_block_is_bounded_as_a_version_1_is() -> None:
    for extra in ({"keys": [None]}, {"codec": "zstd"}, {"codec": "lz4"}):
        with pytest.raises(TooLarge) as caught:
            encode_columns([random.Random(1).randbytes(BLOCK_BYTES_MAX)], 0, **extra)  # type: ignore[arg-type]
        assert caught.value.metadata["name"] == "block_bytes"
    with pytest.raises(TooLarge) as caught:
        encode_columns([b""] * (BLOCK_RECORDS_MAX + 1), 0, codec="zstd")
    assert caught.value.metadata["name"] == "block_records"
    small = BlockBounds(records_max=2)
    with pytest.raises(TooLarge):
        validate_block(whole(), bounds=small)
    with pytest.raises(TooLarge):
        validate_block(Block.parse(whole()).cut(0, 1), bounds=small)


def test_the_most_headers_and_one_more() -> None:
    """BLOCK_HEADERS_MAX."""
    many = dict.fromkeys(map(str, range(1000)), b"")
    headers = [many] * (BLOCK_HEADERS_MAX // 1000)
    values = [b""] * len(headers)
    found = Block.parse(encode_columns(values, 0, headers=headers, codec="zstd")).columns()
    assert found.headers() == headers
    with pytest.raises(TooLarge) as caught:
        encode_columns([*values, b""], 0, headers=[*headers, {"a": b""}], codec="zstd")
    assert caught.value.metadata["name"] == "block_headers"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"keys": [b"a"]}, "keys"),
        ({"headers": [{}] * 3}, "headers"),
        ({"times_us": []}, "times_us"),
        ({"times_us": [1, 2**63]}, "times_us"),
        ({"times_us": [1, "2"]}, "records"),
        ({"keys": [1, 2]}, "records"),
        ({"keys": ["a", "b"]}, "keys"),
        ({"headers": [{"a": "b"}, {}]}, "headers"),
        ({"headers": [{b"a": b"b"}, {}]}, "records"),
        ({"headers": [{"\ud800": b"b"}, {}]}, "records"),
        ({"headers": [None, {}]}, "records"),
        ({"codec": "gzip"}, "codec"),
        ({"codec": 1}, "codec"),
        ({"codec": ["zstd"]}, "codec"),
    ],
)
def test_what_is_no_column_is_an_invalid_argument(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        encode_columns([b"a", b"b"], 0, **given)
    assert caught.value.metadata["field"] == field


def test_no_records_are_an_invalid_argument() -> None:
    for extra in ({"keys": []}, {"codec": "zstd"}, {}):
        with pytest.raises(InvalidArgument):
            encode_columns([], 0, **extra)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        block_of_parts(Parts(0, Binary(bytes(4), b""), times=b""), 0)


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_a_codec_that_is_not_installed(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = whole(codec)
    for module in ("zstandard", "lz4", "lz4.block"):
        monkeypatch.setitem(__import__("sys").modules, module, None)
    assert validate_block(data) == 4
    for attempt in (lambda: whole(codec), lambda: Block.parse(data).columns()):
        with pytest.raises(CodecMissing, match="needs a package: pip install") as caught:
            attempt()
        assert caught.value.metadata["codec"] == codec
    assert told(Block.parse(whole())), "without a codec nothing is needed"


def test_codecs_have_the_numbers_of_the_format() -> None:
    assert [codecs.codec_of(name) for name in CODECS] == [0, 1, 2]
    for name, data in ((name, whole(name)) for name in CODECS):
        assert data[5] == codecs.codec_of(name)


@pytest.mark.parametrize(
    ("codec", "body"),
    [
        (Codec.ZSTD, "28b52ffd 20 18 c10000 00000000010000000200000000000000 6162000000000000"),
        (Codec.LZ4, "90 000000000100000002 0900 b0 000000 6162000000000000"),
    ],
)
def test_compressed_bytes_are_read_for_ever(codec: Codec, body: str) -> None:
    """A frame of zstd with one raw block, and a block of lz4 with one match: what the libraries
    write may change, what they read may not.
    """
    data = compressed(codec, bytes.fromhex(body), len(PLAIN))
    assert Block.parse(data).records() == [b"a", b"b"]


def test_offsets_of_a_cut_are_those_of_its_body() -> None:
    block = Block.parse(whole())
    for start, stop in pairwise(range(5)):
        found = Block.parse(block.cut(start, stop))
        assert (found.first, found.second, found.body) == (start, block.second, block.body)
