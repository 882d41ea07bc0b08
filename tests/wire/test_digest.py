"""The digest of a range: what it depends on, what it does not, and its bytes."""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Iterable, Sequence

import pytest
from logservice_wire import digest as digests
from logservice_wire.block import Block, encode_block
from logservice_wire.digest import START, Digester, digest_text

Run = tuple[int, list[bytes] | tuple[int, int]]
"""The first LSN, and records, or the number of LSNs and the reason of a gap."""


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces that a test fills."""
    monkeypatch.setattr(digests, "PIECE_LSNS", 16)
    monkeypatch.setattr(digests, "PIECE_BYTES", 40)


def feed(digester: Digester, runs: Iterable[Run]) -> Digester:
    for first_lsn, run in runs:
        if digester.done:
            break
        if isinstance(run, tuple):
            digester.add_gap(first_lsn, *run)
        else:
            digester.add_block(first_lsn, Block.parse(encode_block(run, 7)))
    return digester


def of(runs: Sequence[Run], from_lsn: int, to_lsn: int) -> bytes:
    return feed(Digester(from_lsn, to_lsn), runs).digest()


def plainly(log: dict[int, bytes | int], from_lsn: int, to_lsn: int) -> bytes:
    """The definition of docs/digest.md, record by record."""
    chain, lsn = bytes(32), from_lsn
    while lsn < to_lsn:
        begun, size = lsn, 0
        values, lengths, gaps = b"", b"", []
        while lsn < to_lsn and lsn - begun < digests.PIECE_LSNS and size < digests.PIECE_BYTES:
            one = log[lsn]
            if isinstance(one, int):
                if gaps and gaps[-1][2] == one and sum(gaps[-1][:2]) == lsn:
                    gaps[-1][1] += 1
                else:
                    gaps.append([lsn, 1, one])
            else:
                values += one
                lengths += struct.pack("<I", len(one))
                size += len(one)
            lsn += 1
        head = b"logservice piece" + bytes([1, 0]) + struct.pack("<QQ", begun, lsn)
        streams = (values, lengths, b"".join(struct.pack("<QQI", *gap) for gap in gaps))
        chain = hashlib.sha256(
            head + chain + b"".join(hashlib.sha256(one).digest() for one in streams)
        ).digest()
    head = b"logservice range" + bytes([1, 0]) + struct.pack("<QQ", from_lsn, to_lsn)
    return hashlib.sha256(head + chain).digest()


def a_log(rng: random.Random, size: int) -> dict[int, bytes | int]:
    log: dict[int, bytes | int] = {}
    while len(log) < size:
        if rng.random() < 0.1:
            reason = rng.randint(1, 4)
            for _ in range(rng.choice((1, 3, 40))):
                log[len(log) + 1] = reason
        else:
            log[len(log) + 1] = rng.randbytes(rng.choice((0, 0, 1, 5, 39, 40, 100)))
    return log


def cut(rng: random.Random, log: dict[int, bytes | int]) -> list[Run]:
    """The log in blocks and gaps, cut by chance."""
    runs: list[Run] = []
    lsn = 1
    while lsn in log:
        first, wanted, one = lsn, rng.randint(1, 30), log[lsn]
        if isinstance(one, int):
            while log.get(lsn) == one and lsn - first < wanted:
                lsn += 1
            runs.append((first, (lsn - first, one)))
            continue
        records = []
        while lsn - first < wanted and isinstance(record := log.get(lsn), bytes):
            records.append(record)
            lsn += 1
        runs.append((first, records))
    return runs


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(40))
def test_it_is_the_plain_definition_whatever_the_blocks(seed: int) -> None:
    """INV-DIGEST-1: blocks and interruptions do not count."""
    rng = random.Random(seed)
    log = a_log(rng, 150)
    from_lsn = rng.randint(1, 100)
    to_lsn = rng.randint(from_lsn + 1, len(log) + 1)
    wanted = plainly(log, from_lsn, to_lsn)
    assert of(cut(rng, log), from_lsn, to_lsn) == wanted
    at_lsn, chain = from_lsn, START
    while at_lsn < to_lsn:
        one = Digester(from_lsn, to_lsn, at_lsn=at_lsn, chain=chain)
        for run in cut(rng, log):
            if run[0] + (run[1][0] if isinstance(run[1], tuple) else len(run[1])) <= one.next_lsn:
                continue
            feed(one, [run])
            if one.chain_lsn > at_lsn or one.done:
                break
        at_lsn, chain = one.chain_lsn, one.chain
    assert Digester(from_lsn, to_lsn, at_lsn=at_lsn, chain=chain).digest() == wanted
    open_ended = Digester(from_lsn, 1 << 62)
    feed(
        open_ended,
        [
            run
            for run in cut(rng, {n: log[n] for n in range(1, to_lsn)})
            if run[0] + (run[1][0] if isinstance(run[1], tuple) else len(run[1])) > from_lsn
        ],
    )
    open_ended.end_here()
    assert open_ended.digest() == wanted


LOG: list[Run] = [(1, [b"a", b"bc", b""]), (4, (2, 1)), (6, [b"d"])]


@pytest.mark.parametrize(
    "other",
    [
        [(1, [b"a", b"bd", b""]), (4, (2, 1)), (6, [b"d"])],
        [(1, [b"ab", b"c", b""]), (4, (2, 1)), (6, [b"d"])],
        [(1, [b"a", b"", b"bc"]), (4, (2, 1)), (6, [b"d"])],
        [(1, [b"a", b"bc", b""]), (4, (2, 2)), (6, [b"d"])],
        [(1, [b"a", b"bc", b""]), (4, (1, 1)), (5, (1, 2)), (6, [b"d"])],
        [(1, [b"a", b"bc", b""]), (4, (1, 1)), (5, [b""]), (6, [b"d"])],
        [(1, [b"a", b"bc"]), (3, (2, 1)), (5, [b""]), (6, [b"d"])],
        [(1, [b"a", b"bc", b""]), (4, (3, 1))],
    ],
)
def test_every_change_shows(other: list[Run]) -> None:
    """INV-DIGEST-1: a byte, a bound between records, an order, a reason, a gap."""
    assert of(other, 1, 7) != of(LOG, 1, 7)


def test_the_bounds_count() -> None:
    same: list[Run] = [(1, [b"x"] * 10)]
    assert len({of(same, *bounds) for bounds in ((1, 4), (1, 5), (2, 5), (3, 6))}) == 4


def test_adjacent_gaps_are_one() -> None:
    assert of([*LOG[:1], (4, (1, 1)), (5, (1, 1)), *LOG[2:]], 1, 7) == of(LOG, 1, 7)


def test_it_never_changes() -> None:
    """Digests are kept in archives: these bytes stay what they are."""
    assert digest_text(of(LOG, 1, 7)) == (
        "records-1:ad361fab9b152f39a6dc0330123880ce7e0e8d26ea616fab3d6681cc1db39c44"
    )
    runs: list[Run] = [(1, [b"%d" % n for n in range(70_000)]), (70_001, (70_000, 3))]
    assert of(runs, 2, 140_001).hex() == (
        "3e449731731e9185ae439d1ddd2cdf762224dd62eb69f8c7f09639af99228041"
    )
    assert of(runs, 2, 140_001) == plainly(
        {n + 1: b"%d" % n for n in range(70_000)} | {70_001 + n: 3 for n in range(70_000)},
        2,
        140_001,
    )


@pytest.mark.usefixtures("small")
def test_a_large_record_ends_its_piece() -> None:
    digester = Digester(1, 100)
    feed(digester, [(1, [b"x" * 39, b"", b"y" * 1000, b"z"])])
    assert (digester.chain_lsn, digester.next_lsn) == (4, 5)
    assert (digester.records, digester.value_bytes, digester.gap_lsns) == (4, 1040, 0)


@pytest.mark.parametrize(
    "state",
    [
        {"from_lsn": 0, "to_lsn": 5},
        {"from_lsn": 5, "to_lsn": 5},
        {"from_lsn": 5, "to_lsn": 9, "at_lsn": 4},
        {"from_lsn": 5, "to_lsn": 9, "at_lsn": 10},
        {"from_lsn": 5, "to_lsn": 9, "at_lsn": 6, "chain": b"short"},
        {"from_lsn": 5, "to_lsn": 9, "at_lsn": 5, "chain": b"x" * 32},
    ],
)
def test_what_is_no_range_is_refused(state: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"no (range|state)"):
        Digester(**state)  # type: ignore[arg-type]


def test_holes_and_no_reasons_are_refused() -> None:
    digester = Digester(1, 10)
    with pytest.raises(ValueError, match="missing"):
        feed(digester, [(2, [b"a"])])
    with pytest.raises(ValueError, match="missing"):
        digester.add_gap(2, 1, 1)
    with pytest.raises(ValueError, match="reason"):
        digester.add_gap(1, 1, 0)
    with pytest.raises(ValueError, match="fed up to 1"):
        digester.digest()
