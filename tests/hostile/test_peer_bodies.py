"""Bodies that no store of this version writes, sent to every method of the peer protocol.

Whatever the bytes are, an answer or a typed error must come back. Another exception could only be
logged with a traceback and answered with an unknown outcome. The asker is the store itself, so that
every rule lets the request through: the handlers are tested, and not the rules.
"""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from logservice_wire.errors import LogServiceError

from logservice.hakeeper.commands import proposals
from logservice.server.store import Store
from tests.hostile.test_peer_requests import ASKERS, BODIES, parts_of
from tests.server.secured import lay_out, secured

pytestmark = pytest.mark.asyncio(loop_scope="module")

_SEED = 10
_RANDOM = 150
_BURST = 32


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Store]:
    directory: Path = tmp_path_factory.mktemp("bodies")
    lay_out(directory)
    async with secured(directory) as made:
        yield made


def garbage(seeds: tuple[bytes, ...], rng: random.Random) -> Iterator[bytes]:
    """No bytes, noise, and good bodies that are cut short, made longer, or have bits changed."""
    yield from (b"", b"\0", b"\xff", b"\xc1", bytes(64), b"\xff" * 64, b"\x91" * 2000, b"\xdf" * 9)
    yield struct.pack("<BQd", 0, 1, float("nan")) + bytes(8)
    yield struct.pack("<BQd", 0, 2**64 - 1, float("inf")) + bytes(60)
    for version in (b"", b"\x01", b"\x02"):
        yield version + msgspec.msgpack.encode([2**64 - 1] * 6)
        yield version + msgspec.msgpack.encode(["\x1b[2J\u202e"] * 6)
        yield version + msgspec.msgpack.encode({"a": None})
    for seed in seeds:
        for end in {*range(min(len(seed), 40)), len(seed) - 1}:
            yield seed[: max(0, end)]
        yield seed + b"\0"
        for _ in range(_RANDOM):
            damaged = bytearray(seed or b"\0")
            for _ in range(rng.randint(1, 3)):
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            yield bytes(damaged)
    for _ in range(_RANDOM):
        yield rng.randbytes(rng.randrange(200))


def seeds_of(method: str) -> tuple[bytes, ...]:
    if method == "store.time":
        return (b"",)
    if method != "hakeeper.heartbeat":
        return BODIES[method]
    directories = (proposals.DirectoryReport(77),)
    beat = proposals.StoreHeartbeat("s1", "", "x:1", "x:2", directories, 1, 1)
    return (proposals.encode(beat), proposals.encode(proposals.Tick(1)))  # type: ignore[arg-type]


@pytest.mark.parametrize("method", sorted(ASKERS))
async def test_whatever_the_bytes_are_the_answer_is_typed(store: Store, method: str) -> None:
    host = parts_of(store).host
    assert method in host.requests.questions
    untyped: list[tuple[bytes, BaseException]] = []

    async def ask(body: bytes) -> None:
        try:
            async with asyncio.timeout(1.0):
                await host.on_request(host.identity, method, body)
        except (LogServiceError, TimeoutError):
            pass
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            untyped.append((body, error))

    bodies = list(garbage(seeds_of(method), random.Random(f"{_SEED} {method}")))
    for start in range(0, len(bodies), _BURST):
        await asyncio.gather(*(ask(body) for body in bodies[start : start + _BURST]))
    kinds = {type(error).__name__: (body, error) for body, error in untyped}
    assert not kinds
