"""Wide blocks beside plain ones: processor time to make, check and open a block, and its size.

    python -m bench.parts.wide_block [--rounds 15]

A block has 1000 records. *text* are lines of JSON of about 120 bytes, as an application's events
are; *random* are 150 bytes that nothing compresses. Keys are 12 bytes, times are 8. In each round
every form has its turn, in another order. A figure is the median of all rounds, with the lowest
and the highest; *ratio* is the median of those of one round against the plain block's.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from logservice_client.arrow import values
from logservice_wire.block import Block, encode_block, validate_block
from logservice_wire.column_block import encode_columns

from logservice.checksum import crc32

RECORDS = 1000
CALLS = 20
"""Calls of one measurement."""


@dataclass(slots=True)
class Form:
    """A kind of block and what was measured of it, microseconds by what was done."""

    name: str
    encode: Callable[[], bytes]
    found: dict[str, list[float]] = field(default_factory=dict)


def events(rng: random.Random) -> list[bytes]:
    """Lines of JSON."""
    names = ("order.created", "order.paid", "order.shipped", "user.signed_in")
    return [
        json.dumps(
            {
                "event": rng.choice(names),
                "id": f"{rng.getrandbits(64):016x}",
                "user": rng.randrange(100_000),
                "amount": rng.randrange(1, 100_000) / 100,
                "region": rng.choice(("eu-central", "us-east", "ap-south")),
                "ok": rng.random() < 0.95,
            }
        ).encode()
        for _ in range(RECORDS)
    ]


def forms(records: list[bytes], rng: random.Random) -> list[Form]:
    """All kinds of block of these records; the plain one first."""
    keys = [b"user-%07d" % rng.randrange(100_000) for _ in records]
    times_us = [1_700_000_000_000_000 + 137 * number for number in range(len(records))]

    def wide(codec: str | None) -> Callable[[], bytes]:
        return lambda: encode_columns(records, 1, keys=keys, times_us=times_us, codec=codec)

    return [
        Form("plain (version 1)", lambda: encode_block(records, 1)),
        Form("key, time", wide(None)),
        Form("key, time, lz4", wide("lz4")),
        Form("key, time, zstd", wide("zstd")),
        Form("lz4", lambda: encode_columns(records, 1, codec="lz4")),
        Form("zstd", lambda: encode_columns(records, 1, codec="zstd")),
    ]


def measure(form: Form) -> None:
    """One round."""
    data = form.encode()
    works: dict[str, Callable[[], object]] = {
        "make": form.encode,
        "check": lambda: validate_block(data, crc32=crc32),
        "Arrow": lambda: values(Block.parse(data).columns()),
        "records": lambda: Block.parse(data).records(),
    }
    for name, work in works.items():
        started = time.thread_time()
        for _ in range(CALLS):
            work()
        spent_us = (time.thread_time() - started) / CALLS * 1e6
        form.found.setdefault(name, []).append(spent_us)


def report(title: str, tried: list[Form]) -> None:
    """A row for each form."""
    plain = tried[0]
    size = len(plain.encode())
    print(f"| {title} | bytes | {' | '.join(f'{name} us' for name in plain.found)} |")
    print("|---|" + "---|" * (1 + len(plain.found)))
    for form in tried:
        cells = [f"{len(form.encode())} ({len(form.encode()) / size:.2f})"]
        for name, found in form.found.items():
            pairs = zip(found, plain.found[name], strict=True)
            ratio = statistics.median(ours / base for ours, base in pairs)
            middle = statistics.median(found)
            cells.append(f"{middle:.0f} [{min(found):.0f}, {max(found):.0f}] ({ratio:.1f})")
        print(f"| {form.name} | {' | '.join(cells)} |")
    print()


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    rng = random.Random(1)
    for title, records in (
        ("text", events(rng)),
        ("random", [rng.randbytes(150) for _ in range(RECORDS)]),
    ):
        tried = forms(records, rng)
        for _ in range(rounds):
            for form in rng.sample(tried, len(tried)):
                measure(form)
        report(title, tried)


if __name__ == "__main__":
    main()
