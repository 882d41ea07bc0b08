"""codecs: how the columns of a block are compressed. The only file that needs zstandard and lz4.

Theory of operation. A writer chooses, a reader undoes it, and nobody between them does either: no
store needs these packages, and they are imported when the first block asks for one. zstd comes as
one frame that says the size of its contents; lz4 as one block without a frame.

INV-BLOCK-BOMB: opening allocates what the envelope said, which is bounded, and no more. Contents
that are shorter, longer or none are CorruptBlock. So the size is compared before a zstd frame is
opened, for the library trusts the frame, and lz4 is given no more room.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, Final

from logservice_wire.errors import CodecMissing, CorruptBlock, InvalidArgument

if TYPE_CHECKING:
    import types


class Codec(enum.IntEnum):
    """The number is that of the block's header."""

    NONE = 0
    ZSTD = 1
    LZ4 = 2


CODECS: Final = {"zstd": Codec.ZSTD, "lz4": Codec.LZ4}
"""By the names that people give them."""

_ZSTD_LEVEL: Final = 3
"""zstd's own default."""


def codec_of(name: str | None) -> Codec:
    """None, "zstd" or "lz4". Raises InvalidArgument."""
    if name is None:
        return Codec.NONE
    try:
        return CODECS[name]
    except (KeyError, TypeError):
        raise InvalidArgument(f"no codec {name!r}: zstd, lz4 or None", field="codec") from None


def compress(codec: Codec, plain: bytes) -> bytes:
    """Raises CodecMissing."""
    if codec is Codec.NONE:
        return plain
    if codec is Codec.ZSTD:
        made: bytes = _zstandard().ZstdCompressor(level=_ZSTD_LEVEL).compress(plain)
        return made
    packed: bytes = _lz4().compress(plain, store_size=False)
    return packed


def decompress(codec: Codec, packed: memoryview, size: int) -> memoryview:
    """The `size` bytes that were compressed; those of no codec are not copied.

    Raises CorruptBlock and CodecMissing.
    """
    if codec is Codec.NONE:
        plain: bytes | memoryview = packed
    elif codec is Codec.ZSTD:
        plain = _from_zstd(packed, size)
    else:
        library = _lz4()
        try:
            plain = library.decompress(packed, uncompressed_size=size)
        except library.LZ4BlockError as error:
            raise CorruptBlock(detail=f"lz4: {error}") from error
    if len(plain) != size:
        raise CorruptBlock(detail=f"{len(plain)} bytes of columns, {size} promised")
    return memoryview(plain)


def _from_zstd(packed: memoryview, size: int) -> bytes:
    library = _zstandard()
    try:
        promised = library.frame_content_size(packed)
        if promised != size:
            raise CorruptBlock(detail=f"zstd: a frame of {promised} bytes, {size} promised")
        opened: bytes = library.ZstdDecompressor().decompress(packed, allow_extra_data=False)
    except library.ZstdError as error:
        raise CorruptBlock(detail=f"zstd: {error}") from error
    return opened


def _zstandard() -> types.ModuleType | Any:
    try:
        import zstandard
    except ImportError as error:
        raise _missing("zstd", "zstandard") from error
    return zstandard


def _lz4() -> types.ModuleType | Any:
    try:
        import lz4.block
    except ImportError as error:
        raise _missing("lz4", "lz4") from error
    return lz4.block


def _missing(codec: str, package: str) -> CodecMissing:
    return CodecMissing(
        f"the codec {codec} needs a package: pip install {package}",
        codec=codec,
        package=package,
    )
