"""The issuer's keys are followed: as they rotate, while they cannot be had, when they are old."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from logservice_wire.errors import InvalidArgument
from msgspec.structs import replace

from logservice import bounds
from logservice.server.tokens.issuer_keys import IssuerKeys
from tests.server.tokens.issuer import SECTION, jwk, key, publish
from tests.waiting import eventually


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


async def followed(path: Path, clock: Clock) -> IssuerKeys:
    made = IssuerKeys(replace(SECTION, jwks=str(path)), clock)
    await made.first()
    return made


async def test_a_rotation(tmp_path: Path) -> None:
    """A key that is gone is not in use, and whoever remembers the set sees that it is another."""
    path = tmp_path / "keys.json"
    old, new = jwk(key("RS256"), "old"), jwk(key("ES256"), "new")
    publish(path, old)
    keys = await followed(path, Clock())
    first = keys.current()
    await keys.poll()
    assert keys.current() is first
    publish(path, old, new)
    await keys.poll()
    both = keys.current()
    assert both is not first
    assert set(both) == {"old", "new"}
    publish(path, new)
    await keys.poll()
    assert set(keys.current()) == {"new"}
    assert keys.alarms() == []


@pytest.mark.parametrize("damage", ["gone", "half", "secret"])
async def test_a_set_that_cannot_be_used_changes_nothing_until_the_keys_are_old(
    tmp_path: Path, damage: str
) -> None:
    """INV-TOKEN-3"""
    path, clock = tmp_path / "keys.json", Clock()
    publish(path, jwk(key("RS256"), "k1"))
    keys = await followed(path, clock)
    used = keys.current()
    if damage == "gone":
        path.unlink()
    elif damage == "half":
        path.write_bytes(path.read_bytes()[:-20])
    else:
        publish(path, {"kty": "oct", "k": "AAAA", "kid": "k1"})
    clock.now_s += SECTION.keys_age_max_s - 1
    await keys.poll()
    assert keys.current() is used
    assert keys.failures == 1
    assert "stay in use" in keys.alarms()[0]
    clock.now_s += 1
    assert not keys.current()
    assert keys.count == 0
    assert keys.unknown("k1"), "whether the token is good cannot be told"
    assert "too old" in keys.alarms()[0]
    publish(path, jwk(key("RS256"), "k1"))
    await keys.poll()
    assert set(keys.current()) == {"k1"}
    assert keys.alarms() == []
    assert keys.age_s == 0


async def test_a_store_does_not_start_with_a_file_that_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument):
        await followed(tmp_path / "missing.json", Clock())
    with pytest.raises(InvalidArgument, match="no regular file"):
        await followed(tmp_path, Clock())


async def test_an_unknown_key_asks_again_once_in_a_while(tmp_path: Path) -> None:
    """JWKS_ASK_AGAIN_S: whoever makes key ids up makes the store ask no more often."""
    path, clock = tmp_path / "keys.json", Clock()
    publish(path, jwk(key("RS256"), "k1"))
    keys = await followed(path, clock)
    looks = 0
    look = keys._read

    async def counted() -> None:
        nonlocal looks
        await look()
        looks += 1

    keys._read = counted  # type: ignore[method-assign]
    running = asyncio.create_task(keys.run())
    try:
        publish(path, jwk(key("RS256"), "k1"), jwk(key("RS256", 1), "k2"))
        assert keys.unknown("k2"), "the issuer is being asked"
        async with asyncio.timeout(60):
            while keys.unknown("k2"):
                assert looks < 2
                await asyncio.sleep(0.001)
        assert set(keys.current()) == {"k1", "k2"}
        for number in range(1000):
            assert not keys.unknown(f"made up {number}")
        clock.now_s += bounds.JWKS_ASK_AGAIN_S - 1
        assert not keys.unknown("made up")
        clock.now_s += 1
        assert keys.unknown("made up")
        await eventually(lambda: looks >= 2)
        assert looks == 2
    finally:
        running.cancel()
