"""How fast a range becomes a durable object, plain and sealed, beside `cp` of the same bytes.

``python -m bench.copies.archive FOLDER`` writes the same blocks in turn, round after round: as a
plain object, as a sealed one, and as one file of the blocks that is copied by `cp` and made
durable. So machine and disk are the same for all three. What reading the blocks from the cluster
costs is not in it. `verify` is reading the object back to its digest. Figures are of record bytes.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from logservice_client import Records
from logservice_wire.block import Block, encode_block

from bench.copies.durable_copy import copy
from logservice.archive.folder import Folder
from logservice.archive.range_file import RangeWriter, digest_of_object
from logservice.sealing_keys import Keys

_KEYS = Keys("k", {"k": bytes(32)})


def items(size: int, record_bytes: int, per_block: int, *, text: bool) -> list[Records]:
    """Blocks with `size` bytes of records in all: random bytes, or rows of text."""
    rng = random.Random(1)
    found: list[Records] = []
    lsn = 1
    while size > 0:
        if text:
            rows = (
                b"UPDATE t SET a=%d WHERE k=%d " % (lsn, rng.getrandbits(30))
                for _ in range(per_block)
            )
            records = [(row * (record_bytes // len(row) + 1))[:record_bytes] for row in rows]
        else:
            records = [rng.randbytes(record_bytes) for _ in range(per_block)]
        block = Block.parse(encode_block(records, 1))
        found.append(Records(lsn, per_block, 1, block, 0))
        lsn += per_block
        size -= record_bytes * per_block
    return found


def archive(folder: Folder, given: list[Records], keys: Keys | None) -> str:
    """Write one object, durably; returns its digest."""
    with folder.put("object") as file:
        writer = RangeWriter(file, 1, keys=keys, name="object")
        for item in given:
            writer.add(item)
        return writer.finish()


def main() -> None:
    """Print a row for each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--record-bytes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--text", action="store_true", help="compressible records")
    given = parser.parse_args()
    folder = Folder(given.folder)
    blocks = items(given.mib << 20, given.record_bytes, 1000, text=given.text)
    size = sum(len(item.columns().values.data) for item in blocks)
    source = given.folder / "blocks"
    source.write_bytes(b"".join(item.block.data for item in blocks))
    end_lsn = blocks[-1].next_lsn

    def verify() -> None:
        stored = (given.folder / "object").stat().st_size
        with folder.open("object", stored) as file:
            digest_of_object(file, 1, end_lsn)

    ways: dict[str, Callable[[], object]] = {
        "cp": lambda: copy(source, given.folder / "copy"),
        "sealed": lambda: archive(folder, blocks, _KEYS),
        "plain": lambda: archive(folder, blocks, None),
        "verify": verify,
    }
    took: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(given.rounds):
        for name, way in ways.items():
            began_s = time.perf_counter()
            way()
            took[name].append(time.perf_counter() - began_s)
    for name, seconds in took.items():
        rates = sorted(size / second / 1e6 for second in seconds)
        print(f"{name:8} {statistics.median(rates):7.0f} MB/s ({rates[0]:.0f} to {rates[-1]:.0f})")


if __name__ == "__main__":
    main()
