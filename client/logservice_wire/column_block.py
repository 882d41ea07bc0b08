"""column_block: making a block that has more than values, or is compressed.

Theory of operation. The columns are put together in the order of `block.Flag`, compressed as one
piece, and put behind an envelope (`block.wrapped`). What is nothing but values and has no codec
stays a version 1, which every reader of every release reads.

Whoever has the columns in Arrow's layout already gives them as they are (`Parts`); no record is
touched. Python's lists are turned into columns once, here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain

from logservice_wire.block import Flag, block_of_columns, encode_block, wrapped
from logservice_wire.bounds import BLOCK_BOUNDS, BLOCK_HEADERS_MAX, BlockBounds
from logservice_wire.codecs import Codec, codec_of, compress
from logservice_wire.columns import PADDING, packed
from logservice_wire.errors import InvalidArgument, TooLarge

Buffer = bytes | memoryview


@dataclass(frozen=True, slots=True)
class Binary:
    """A binary column: little-endian int32 offsets that begin with 0, as bytes, and the bytes that
    they point into.
    """

    offsets: Buffer
    data: Buffer


@dataclass(frozen=True, slots=True)
class Parts:
    """The columns of `count` records, as bytes in the form that `columns` describes; None for a
    column that is left out. keys: validity bitmap and keys. headers: offsets, names, contents.
    """

    count: int
    values: Binary
    keys: tuple[Buffer, Binary] | None = None
    times: Buffer | None = None
    headers: tuple[Buffer, Binary, Binary] | None = None

    @property
    def flags(self) -> Flag:
        """Which columns there are."""
        flags = Flag(0)
        flags |= Flag.KEYS if self.keys is not None else flags
        flags |= Flag.TIMES if self.times is not None else flags
        flags |= Flag.HEADERS if self.headers is not None else flags
        return flags

    def pieces(self) -> list[Buffer]:
        """The buffers of the columns, in the order that they have in a block."""
        found: list[Buffer] = [self.values.offsets, self.values.data]
        if self.keys is not None:
            validity, keys = self.keys
            found += [validity, keys.offsets, keys.data]
        if self.times is not None:
            found.append(self.times)
        if self.headers is not None:
            offsets, names, contents = self.headers
            found += [offsets, names.offsets, names.data, contents.offsets, contents.data]
        return found

    @classmethod
    def of_pieces(cls, count: int, flags: Flag, pieces: Iterable[Buffer]) -> Parts:
        """What has those `pieces`."""
        rest = iter(pieces)

        def binary() -> Binary:
            return Binary(next(rest), next(rest))

        return cls(
            count,
            binary(),
            (next(rest), binary()) if Flag.KEYS in flags else None,
            next(rest) if Flag.TIMES in flags else None,
            (next(rest), binary(), binary()) if Flag.HEADERS in flags else None,
        )

    def plain(self) -> bytes:
        """The columns one after another, each padded."""
        padded = ((one, PADDING[len(one) & 7]) for one in self.pieces())
        return b"".join(chain.from_iterable(padded))


def block_of_parts(
    parts: Parts,
    timestamp_us: int,
    codec: str | None = None,
    *,
    bounds: BlockBounds = BLOCK_BOUNDS,
) -> bytes:
    """The block of these columns, stamped with `timestamp_us`; `codec`: None, "zstd" or "lz4".

    Raises InvalidArgument, TooLarge, CodecMissing, and CorruptBlock for a version 1 whose offsets
    are none.
    """
    chosen = codec_of(codec)
    if parts.count == 0:
        raise InvalidArgument("a block needs at least one record", field="records")
    if parts.count > bounds.records_max:
        raise _too_large("block_records", parts.count, bounds.records_max)
    if not parts.flags and chosen is Codec.NONE:
        values = parts.values
        return block_of_columns(
            memoryview(values.offsets), memoryview(values.data), timestamp_us, bounds=bounds
        )
    plain = parts.plain()
    if len(plain) > bounds.plain_bytes_max:
        raise _too_large("block_plain_bytes", len(plain), bounds.plain_bytes_max)
    return wrapped(
        chosen,
        parts.flags,
        compress(chosen, plain),
        len(plain),
        parts.count,
        timestamp_us,
        bounds=bounds,
    )


def encode_columns(
    values: Sequence[bytes],
    timestamp_us: int,
    *,
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Mapping[str, bytes]] | None = None,
    times_us: Sequence[int] | None = None,
    codec: str | None = None,
    bounds: BlockBounds = BLOCK_BOUNDS,
) -> bytes:
    """The block of `values`, stamped with `timestamp_us`, each with its key (None: it has none),
    headers and time (microseconds since 1970) where these are given. `codec`: None, "zstd" or
    "lz4".

    Raises InvalidArgument for columns of different lengths, no records, or what is no column;
    TooLarge beyond `bounds`; CodecMissing.
    """
    if keys is None and headers is None and times_us is None and codec is None:
        return encode_block(values, timestamp_us, bounds=bounds)
    count = len(values)
    for name, column in (("keys", keys), ("headers", headers), ("times_us", times_us)):
        if column is not None and len(column) != count:
            raise InvalidArgument(f"{len(column)} {name} for {count} records", field=name)
    try:
        parts = Parts(
            count,
            _binary("values", values, bounds),
            None if keys is None else _keys(keys, bounds),
            None if times_us is None else _times(times_us),
            None if headers is None else _headers(headers, bounds),
        )
    except (TypeError, AttributeError, UnicodeEncodeError) as error:
        raise InvalidArgument(f"no column: {error}", field="records") from error
    return block_of_parts(parts, timestamp_us, codec, bounds=bounds)


def _binary(name: str, items: Sequence[bytes], bounds: BlockBounds) -> Binary:
    size = sum(map(len, items))
    if size > bounds.plain_bytes_max:
        raise _too_large("block_plain_bytes", size, bounds.plain_bytes_max)
    try:
        return Binary(_offsets(map(len, items)), b"".join(items))
    except TypeError as error:
        raise InvalidArgument(f"{name} are bytes: {error}", field=name) from error


def _offsets(lengths: Iterable[int]) -> bytes:
    return packed("i", accumulate(lengths, initial=0))


def _keys(keys: Sequence[bytes | None], bounds: BlockBounds) -> tuple[Buffer, Binary]:
    # The bitmap as text in base 2, the last record first: one conversion for all of them.
    bits = "".join("0" if key is None else "1" for key in reversed(keys))
    validity = int(f"0b{bits or '0'}", 0).to_bytes((len(keys) + 7) >> 3, "little")
    return validity, _binary("keys", [key or b"" for key in keys], bounds)


def _times(times_us: Sequence[int]) -> bytes:
    try:
        return packed("q", times_us)
    except OverflowError as error:
        raise InvalidArgument("a time has 64 bits", field="times_us") from error


def _headers(
    headers: Sequence[Mapping[str, bytes]], bounds: BlockBounds
) -> tuple[Buffer, Binary, Binary]:
    names = [name.encode() for name in chain.from_iterable(headers)]
    if len(names) > BLOCK_HEADERS_MAX:
        raise _too_large("block_headers", len(names), BLOCK_HEADERS_MAX)
    contents = list(chain.from_iterable(one.values() for one in headers))
    return (
        _offsets(map(len, headers)),
        _binary("headers", names, bounds),
        _binary("headers", contents, bounds),
    )


def _too_large(name: str, value: int, limit: int) -> TooLarge:
    return TooLarge(f"{name} {value} is over the limit", name=name, value=value, limit=limit)
