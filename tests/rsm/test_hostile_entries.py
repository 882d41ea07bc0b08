"""Whatever bytes a committed entry holds, all replicas answer, stay equal, and can go on."""

from __future__ import annotations

import random

import pytest

from logservice.entry import EntryKind
from logservice.ids import Index, Lsn, SessionId
from logservice.rsm.commands import (
    AcquireWriter,
    Command,
    ForgetSession,
    OpenNamedSession,
    OpenSession,
    SetHold,
    Truncate,
)
from logservice.rsm.log_rsm import LogRsm
from tests.owners import APP, NONCE
from tests.rsm.shard_driver import ShardDriver, landed, request


def mutated(rng: random.Random, payload: bytes) -> bytes:
    data = bytearray(payload)
    for _ in range(rng.randint(1, 6)):
        match rng.randrange(5):
            case 0 if data:
                data[rng.randrange(len(data))] = rng.randrange(256)
            case 1 if data:
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            case 2:
                data.insert(rng.randint(0, len(data)), rng.randrange(256))
            case 3:
                del data[rng.randint(0, len(data)) :]
            case _:
                data += rng.randbytes(rng.randrange(20))
    return bytes(data)


@pytest.mark.parametrize("seed", range(12))
def test_inv_rsm_never_raises_mutated_entries(seed: int) -> None:
    rng = random.Random(seed)
    shard, twin = ShardDriver(), LogRsm()
    sessions: list[int] = []
    for number in range(250):
        roll = rng.random()
        if roll < 0.5:
            session = rng.choice([0, *sessions])
            good = shard.block_entry(
                *(
                    request(rng.randint(1, 3), session=session, sequence=rng.randint(1, 4))
                    for _ in range(rng.randint(1, 3))
                )
            )
        else:
            commands: list[Command] = [
                OpenSession(APP, NONCE),
                SetHold(APP, False, Lsn(number + 1), "h"),
                Truncate(APP, Lsn(number + 1), 0),
                AcquireWriter(APP, False, 0, rng.random() < 0.01, "w"),
                OpenNamedSession(APP, rng.randrange(9), 0, 0, bytes(32), f"n{rng.randrange(3)}"),
                ForgetSession(APP, False, SessionId(rng.randrange(number + 1)), Index(number)),
            ]
            command = rng.choice(commands)
            good = shard.command_entry(command)
        payload = good.payload if rng.random() < 0.3 else mutated(rng, good.payload)
        shard.index, shard.next_lsn = shard.rsm.state.applied_index, shard.rsm.state.next_lsn
        bad = shard.entry(good.kind, good.record_count, payload)
        assert shard.apply(bad) == [outcome for _, outcome in twin.update(bad)]
        assert shard.rsm.state.next_lsn == bad.next_lsn
        sessions = [session for session, _ in shard.rsm.state.sessions]
    data = shard.rsm.save_snapshot()
    assert data == twin.save_snapshot()
    twin.recover_from_snapshot(data)
    assert twin.save_snapshot() == data


@pytest.mark.parametrize("kind", [EntryKind.BLOCK, EntryKind.COMMAND, EntryKind.CONFIG])
def test_inv_rsm_never_raises_random_payloads(kind: EntryKind) -> None:
    rng = random.Random(kind)
    shard = ShardDriver()
    for _ in range(2000):
        count = rng.randrange(5) if kind is EntryKind.BLOCK else 0
        shard.apply(shard.entry(kind, count, rng.randbytes(rng.randrange(120))))
    next_lsn = shard.next_lsn
    assert shard.append() == landed(next_lsn)
