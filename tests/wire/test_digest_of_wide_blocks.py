"""The digest of wide blocks: by the definition of docs/digest.md, however they are cut."""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Sequence
from typing import Any

import pytest
from logservice_wire import digest as digests
from logservice_wire.block import Block, encode_block
from logservice_wire.column_block import encode_columns
from logservice_wire.digest import Digester, digest_text

Item = tuple[int, Block | tuple[int, int]]
"""The first LSN, and a block, or the number of LSNs and the reason of a gap."""


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces that a test fills; a body is smaller than one."""
    monkeypatch.setattr(digests, "PIECE_LSNS", 16)
    monkeypatch.setattr(digests, "PIECE_BYTES", 600)


def a_log(rng: random.Random, count: int) -> list[Item]:
    items: list[Item] = []
    lsn = 1
    for _ in range(count):
        kind, size = rng.random(), rng.choice((1, 2, 5, 20))
        values = [rng.randbytes(rng.choice((0, 1, 9))) for _ in range(size)]
        if kind < 0.15:
            items.append((lsn, (size, rng.randint(1, 4))))
        elif kind < 0.35:
            items.append((lsn, Block.parse(encode_block(values, 7))))
        else:
            keys = [rng.choice((None, b"", b"k"))] * size
            codec = rng.choice((None, "zstd", "lz4"))
            items.append((lsn, Block.parse(encode_columns(values, 7, keys=keys, codec=codec))))
        lsn += size
    return items


def end_of(items: Sequence[Item]) -> int:
    lsn, last = items[-1]
    return lsn + (last[0] if isinstance(last, tuple) else len(last))


def of(items: Sequence[Item], from_lsn: int, to_lsn: int, *, stops: bool = False) -> bytes:
    """`stops`: begin anew behind each piece, as another replica would."""
    digester = Digester(from_lsn, to_lsn)
    for lsn, item in items:
        if stops and digester.chain_lsn != from_lsn:
            digester = Digester(from_lsn, to_lsn, at_lsn=digester.chain_lsn, chain=digester.chain)
            fed = [one for one in items if one[0] < lsn and end_of([one]) > digester.next_lsn]
        else:
            fed = []
        for first, one in [*fed, (lsn, item)]:
            if digester.done or end_of([(first, one)]) <= digester.next_lsn:
                continue
            if isinstance(one, tuple):
                digester.add_gap(first, *one)
            else:
                digester.add_block(first, one)
    return digester.digest()


def cut(rng: random.Random, items: Sequence[Item]) -> list[Item]:
    """The same log, its wide blocks cut anywhere."""
    found: list[Item] = []
    for lsn, item in items:
        if isinstance(item, tuple) or not item.wide:
            found.append((lsn, item))
            continue
        at = 0
        while at < len(item):
            stop = rng.randint(at + 1, len(item))
            found.append((lsn + at, Block.parse(item.cut(at, stop))))
            at = stop
    return found


def plainly(items: Sequence[Item], from_lsn: int, to_lsn: int) -> bytes:
    """The definition of docs/digest.md, record by record."""
    log: dict[int, Any] = {}
    for first, item in items:
        if isinstance(item, tuple):
            log.update(dict.fromkeys(range(first, first + item[0]), item[1]))
        elif item.wide:
            body = hashlib.sha256(bytes(item.data[4:8]) + bytes(item.data[32:])).digest()
            for number in range(len(item)):
                log[first + number] = (body, item.first + number, len(item.data) - 32)
        else:
            log.update(enumerate(item.records(), first))
    chain, lsn = bytes(32), from_lsn
    while lsn < to_lsn:
        begun, size = lsn, 0
        values, lengths, gaps, wide = b"", b"", [], []
        while lsn < to_lsn and lsn - begun < digests.PIECE_LSNS and size < digests.PIECE_BYTES:
            one = log[lsn]
            if isinstance(one, int):
                if gaps and gaps[-1][2] == one and sum(gaps[-1][:2]) == lsn:
                    gaps[-1][1] += 1
                else:
                    gaps.append([lsn, 1, one])
            elif isinstance(one, tuple):
                body, number, bytes_of = one
                last = wide[-1] if wide else [0, 0, 0, b""]
                if (last[3], last[0] + last[1], last[2] + last[1]) == (body, lsn, number):
                    last[1] += 1
                else:
                    wide.append([lsn, 1, number, body])
                    size += bytes_of
            else:
                values += one
                lengths += struct.pack("<I", len(one))
                size += len(one)
            lsn += 1
        head = b"logservice piece" + bytes([1, 0]) + struct.pack("<QQ", begun, lsn)
        streams = [values, lengths, b"".join(struct.pack("<QQI", *gap) for gap in gaps)]
        if wide:
            streams.append(b"".join(struct.pack("<QQI", *run[:3]) + run[3] for run in wide))
        chain = hashlib.sha256(
            head + chain + b"".join(hashlib.sha256(one).digest() for one in streams)
        ).digest()
    head = b"logservice range" + bytes([1, 0]) + struct.pack("<QQ", from_lsn, to_lsn)
    return hashlib.sha256(head + chain).digest()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(60))
def test_it_is_that_of_the_definition_however_blocks_are_cut(seed: int) -> None:
    """INV-DIGEST-1, with calls that end behind every piece."""
    rng = random.Random(seed)
    items = a_log(rng, 40)
    low = rng.randrange(1, end_of(items))
    high = rng.randint(low + 1, end_of(items))
    wanted = plainly(items, low, high)
    assert of(items, low, high) == wanted
    assert of(cut(rng, items), low, high) == wanted
    assert of(cut(rng, items), low, high, stops=True) == wanted


def test_other_columns_times_codecs_and_records_give_another_digest() -> None:
    values = [b"a", b"b"]
    blocks = [
        encode_block(values, 0),
        encode_columns(values, 0, keys=[None, None]),
        encode_columns(values, 0, keys=[None, b""]),
        encode_columns(values, 0, times_us=[1, 2]),
        encode_columns(values, 0, times_us=[1, 3]),
        encode_columns(values, 0, headers=[{}, {}]),
        encode_columns(values, 0, headers=[{"a": b""}, {}]),
        encode_columns(values, 0, codec="zstd"),
        encode_columns(values, 0, codec="lz4"),
        Block.parse(encode_columns([*values, b""], 0, codec="zstd")).cut(0, 2),
        Block.parse(encode_columns([b"", *values], 0, codec="zstd")).cut(1, 3),
    ]
    found = {of([(5, Block.parse(block))], 5, 7) for block in blocks}
    assert len(found) == len(blocks)
    assert len({of([(5, Block.parse(blocks[1]))], *ends) for ends in ((5, 6), (6, 7))}) == 2


def test_when_the_block_was_made_does_not_count() -> None:
    """As with records: a time of the client's clock is no part of what is compared."""
    found = {of([(1, Block.parse(encode_columns([b"a"], at, keys=[b"k"])))], 1, 2) for at in (1, 9)}
    assert len(found) == 1


def test_a_digest_that_never_changes() -> None:
    block = Block.parse(encode_columns([b"a", b"", b"c"], 1, keys=[b"k", None, b""]))
    assert digest_text(of([(1, block), (4, (2, 1))], 1, 6)) == (
        "records-1:f11dd0b903e0bcda3f945fbe93594e27e05a3a2a6dd2b9b7a76a46066964e2d8"
    )


def test_the_most_records_of_the_largest_bodies_end_a_piece_soon() -> None:
    """A body counts: a piece of wide blocks is no larger than one of records."""
    value = random.Random(3).randbytes(5_000_000)
    blocks = [Block.parse(encode_columns([value], number, keys=[None])) for number in range(4)]
    digester = Digester(1, 5)
    ends = []
    for number, block in enumerate(blocks):
        digester.add_block(1 + number, block)
        ends.append(digester.chain_lsn)
    assert ends == [1, 3, 3, 5]
