"""Sealed objects: they open as they were, with their key and under their name, or not at all."""

from __future__ import annotations

import io
import os
import random

import pytest
from logservice_client import Records
from logservice_wire.block import Block, encode_block
from logservice_wire.errors import InvalidArgument

from logservice.archive import sealing
from logservice.archive.damage import ArchiveDamaged
from logservice.archive.range_file import RangeWriter, digest_of_object
from logservice.archive.sealing import Sealing, unseal
from logservice.sealing_keys import KEY_BYTES, Keys

KEYS = Keys("b", {"a": b"a" * KEY_BYTES, "b": b"b" * KEY_BYTES})


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "SEGMENT_BYTES", 100)


def sealed(content: bytes, name: str = "n", keys: Keys = KEYS, step: int = 37) -> bytes:
    file = io.BytesIO()
    sealing_ = Sealing(file, keys, name)
    for at in range(0, len(content), step):
        sealing_.write(memoryview(content)[at : at + step])
    sealing_.end()
    return file.getvalue()


def unsealed(content: bytes, name: str = "n", keys: Keys = KEYS) -> bytes:
    into = io.BytesIO()
    unseal(io.BytesIO(content), into, keys, name)
    return into.getvalue()


@pytest.mark.parametrize("size", [0, 1, 99, 100, 101, 200, 1234])
def test_what_was_sealed_is_opened(size: int) -> None:
    content = os.urandom(size)
    for step in (1, 100, 250, 5000):
        assert unsealed(sealed(content, step=step)) == content
    assert size < 30 or content[:30] not in sealed(content)


def test_the_same_bytes_are_sealed_differently_each_time() -> None:
    assert sealed(b"same")[-20:] != sealed(b"same")[-20:]


def test_whatever_is_changed_does_not_open() -> None:
    """INV-ARCHIVE-SEALED: a bit, a length, the order and number of segments."""
    rng = random.Random(1)
    content = os.urandom(450)
    whole = sealed(content)
    head = len(whole) - 450 - 5 * 16
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << rng.randrange(8)
        with pytest.raises((ArchiveDamaged, InvalidArgument)):
            unsealed(bytes(damaged))
    for size in range(len(whole)):
        with pytest.raises((ArchiveDamaged, InvalidArgument)):
            unsealed(whole[:size])
    parts = [whole[at : at + 116] for at in range(head, len(whole), 116)]
    for other in (
        [parts[1], parts[0], *parts[2:]],
        [*parts, parts[-1]],
        parts[1:],
        [parts[0], *parts],
        parts[:-1],
    ):
        with pytest.raises(ArchiveDamaged):
            unsealed(whole[:head] + b"".join(other))
    other_object = sealed(content)
    with pytest.raises(ArchiveDamaged):
        unsealed(whole[:head] + other_object[head:])


def test_another_name_or_key_does_not_open_it() -> None:
    whole = sealed(b"content")
    with pytest.raises(ArchiveDamaged):
        unsealed(whole, name="m")
    with pytest.raises(ArchiveDamaged):
        unsealed(whole, keys=Keys("b", {"b": b"c" * KEY_BYTES}))
    with pytest.raises(InvalidArgument, match="not among"):
        unsealed(whole, keys=Keys("a", {"a": b"a" * KEY_BYTES}))


def test_an_old_key_opens_what_it_sealed() -> None:
    whole = sealed(b"content", keys=Keys("a", KEYS.keys))
    assert unsealed(whole) == b"content"


def test_a_sealed_range() -> None:
    file = io.BytesIO()
    writer = RangeWriter(file, 1, keys=KEYS, name="n")
    block = Block.parse(encode_block([b"secret %d" % number for number in range(500)], 1))
    writer.add(Records(1, 500, 1, block, 0))
    digest = writer.finish()
    assert writer.file.size == len(file.getvalue())
    assert b"secret" not in file.getvalue()
    with pytest.raises(ArchiveDamaged):
        digest_of_object(io.BytesIO(file.getvalue()), 1, 501)
    assert digest_of_object(io.BytesIO(unsealed(file.getvalue())), 1, 501) == digest
