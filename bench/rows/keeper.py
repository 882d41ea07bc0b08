"""keeper: HAKeeper with 100 stores and 10 000 shards, in virtual time (`bench.keeper.scale`).

It runs in a process of its own, whose collector is set as a store's. The loop's longest stretch is
of the cluster's birth, of a quiet time and of changed reports; what people ask for and what losses
take is measured by `bench.keeper.scale` as a whole and stands in docs/scale.md.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.rows.appends import alone
from bench.rows.row import Bout, Figure, Setting

ROOT = Path(__file__).resolve().parents[2]
CHECK = "one report changed: a pass, 99 %, ms"


@contextmanager
def keeper(setting: Setting) -> Iterator[list[Bout]]:
    """Milliseconds of processor time: a check after one changed report, the longest stretch."""
    stores = int(setting.size(100, 20, "stores"))
    shards = int(setting.size(10_000, 1000, "shards"))

    async def turn() -> Figure:
        file = setting.directory / "scale.json"
        words = ["--stores", str(stores), "--shards", str(shards), "--passes", "--json", str(file)]
        await program("bench.keeper.scale", *words)
        found: dict[str, float] = json.loads(file.read_text())
        longest = [ms for name, ms in found.items() if name.endswith("longest, ms")]
        return Figure({"check_ms": found[CHECK], "stretch_ms": max(longest)}, shards)

    yield [alone(turn)]


async def program(module: str, *words: str) -> str:
    """Run a module of the bench to its end; what it printed. Killed when the row is cancelled;
    RuntimeError when it fails.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        *words,
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise RuntimeError(f"{module} failed:\n{said.decode()[-2000:]}")
    return said.decode()
