"""Sealed objects: they open as they were, with their key and under their name, or not at all."""

from __future__ import annotations

import base64
import io
import os
import random
import sys
from pathlib import Path

import pytest
from logservice_client import Records
from logservice_wire.block import Block, encode_block
from logservice_wire.errors import InvalidArgument

from logservice.archive import sealing
from logservice.archive.manifest import ArchiveDamaged
from logservice.archive.range_file import RangeWriter, digest_of_object
from logservice.archive.sealing import (
    KEY_BYTES,
    Keys,
    Sealing,
    keys_of_command,
    keys_of_file,
    unseal,
)

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


TEXT = f'active = "k"\n[keys]\nk = "{base64.b64encode(b"k" * 32).decode()}"\n'


def test_keys_of_a_file_that_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(TEXT)
    path.chmod(0o640)
    with pytest.raises(InvalidArgument, match="mode 600"):
        keys_of_file(path)
    path.chmod(0o600)
    keys = keys_of_file(path)
    assert keys == Keys("k", {"k": b"k" * 32})
    assert "kkkk" not in repr(keys)
    with pytest.raises(InvalidArgument):
        keys_of_file(tmp_path / "none")


def test_keys_of_a_command() -> None:
    assert keys_of_command([sys.executable, "-c", f"print({TEXT!r})"]).active == "k"
    for wrong in ([sys.executable, "-c", "raise SystemExit(1)"], ["/no/such/program"]):
        with pytest.raises(InvalidArgument):
            keys_of_command(wrong)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "active = 1",
        TEXT.replace('"k"', '"other"'),
        TEXT.replace("a2tr", "a2t", 1),
        TEXT.replace("k = ", '"k k" = '),
        'active = "k"\nkeys = 3',
        'active = "k"\n[keys]\nk = "AAAA"',
        'active = ["k"]\n[keys]\nk = 7',
        "\0",
    ],
)
def test_what_are_no_keys_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        Keys.parse(text, "here")
    assert "a2tr" not in str(caught.value)
