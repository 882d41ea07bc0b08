"""20 000 hostile inputs for each decoder of every format in the catalogue: each must give a value
or the typed error that its callers expect, and never another exception.

`tests/crash/test_fuzz.py` tries the decoders of log storage and of the peers' frames,
`tests/nodehost/test_transport_codec.py` those of the core's messages, `tests/wire/test_block.py`
those of blocks; the others are tried here. Half of the inputs have their checksum made right again,
so that they reach the code behind it.
"""

from __future__ import annotations

import logging
import random
import struct
from collections.abc import Callable, Iterator

import msgspec
import pytest
from logservice_wire.errors import LogServiceError

from logservice.checksum import crc32
from logservice.nodehost.transport.wire.control import ControlError
from tests.crash.test_fuzz import EXECUTIONS, mutated
from tests.formats import peer_formats
from tests.formats.catalogue import FORMATS
from tests.formats.form import Format, read_golden

Decode = Callable[[bytes], object]

ELSEWHERE = {
    "block",
    "wide-block",
    "segment-header",
    "commit-group",
    "record",
    "checkpoint",
    "snapshot",
    "identity",
    "frame",
}
CHECKSUMS = {"address-book": 0, "access-book": 0, "log-state": 8}
"""By format: the place of the CRC-32 of all bytes that follow it."""

PEER_ERRORS = (ControlError, LogServiceError, msgspec.MsgspecError, ValueError, struct.error)
"""The errors that are allowed beside `CodecError`. Each kind of bytes from a peer has its own
decoder and its own caller."""

TRIED = [one for one in FORMATS if one.name not in ELSEWHERE]


def decoders(one: Format) -> dict[Decode, list[bytes]]:
    """The decoders of a format, with good bytes for each."""
    found: dict[Decode, list[bytes]] = {}
    for sample in one.samples:
        if sample.decode is not peer_formats._decode_message:
            data = read_golden(one.path(sample))[sample.name]
            found.setdefault(sample.decode, []).append(data)
    return found


def inputs(name: str, good: list[bytes], every: list[bytes]) -> Iterator[bytes]:
    """Changed bytes; now and then they are meant for another decoder of the format."""
    rng = random.Random(name)
    crc_at = CHECKSUMS.get(name)
    for number in range(EXECUTIONS):
        data = mutated(rng, rng.choice(good if rng.random() < 0.9 else every))
        if crc_at is not None and number % 2 and len(data) >= crc_at + 4:
            struct.pack_into("<I", data, crc_at, crc32(bytes(data[crc_at + 4 :])))
        yield bytes(data)


@pytest.fixture
def silence() -> Iterator[None]:
    """Disable logging: a damaged book is logged each time."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("silence")
@pytest.mark.parametrize("one", TRIED, ids=lambda one: one.name)
def test_any_bytes_are_a_value_or_the_typed_error(one: Format) -> None:
    errors: tuple[type[Exception], ...] = tuple(filter(None, (one.error, one.newer)))
    if one.name == "peer-protocol":
        errors += PEER_ERRORS
    every = [data for good in decoders(one).values() for data in good]
    for decode, good in decoders(one).items():
        refused = 0
        for data in inputs(one.name, good, every):
            try:
                decode(data)
            except errors:
                refused += 1
        assert refused < EXECUTIONS, "some must be near enough to a value"
        assert bool(refused) == bool(errors)


def test_no_format_is_left_out() -> None:
    assert {one.name for one in FORMATS} >= ELSEWHERE
    assert {one.name for one in TRIED} >= set(CHECKSUMS)
    assert sum(len(decoders(one)) for one in TRIED) > 20
