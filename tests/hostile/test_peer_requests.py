"""What a store with a valid certificate may ask of the others: a stranger may ask next to nothing.

This is about the trust between stores (THREAT_MODEL.md). A store that is in no membership and not
enrolled tries every method that a store answers, over real TLS connections and with its own codec.
"""

from __future__ import annotations

import struct
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from logservice_wire.block import encode_block

from logservice.hakeeper.commands import proposals
from logservice.ids import HAKEEPER_SHARD, ShardId, Term
from logservice.nodehost.assembly.store_parts import StoreParts
from logservice.nodehost.peers.question import Asker
from logservice.rsm import commands
from logservice.server.store import Store
from logservice.versions import KNOWN
from tests.hostile.rogue_peer import Refusal, RoguePeer, context_of
from tests.owners import APP, NONCE
from tests.papers import uri
from tests.server.secured import STORES, lay_out, secured
from tests.waiting import eventually

STRANGER = "stranger"
LOG = ShardId(1)

ASKERS: Mapping[str, Asker] = {
    "bootstrap.probe": Asker.ENROLLED,
    "compare.digest": Asker.MEMBER,
    "compare.finding": Asker.MEMBER,
    "hakeeper.heartbeat": Asker.ANY,
    "hakeeper.lookup": Asker.ENROLLED,
    "hakeeper.stale_lookup": Asker.ENROLLED,
    "hakeeper.propose": Asker.ENROLLED,
    "hearing.announce": Asker.MEMBER,
    "hearing.vouch": Asker.MEMBER,
    "measure.echo": Asker.ENROLLED,
    "monitor.claims": Asker.ENROLLED,
    "monitor.history": Asker.ENROLLED,
    "monitor.shard": Asker.ENROLLED,
    "monitor.status": Asker.ENROLLED,
    "repair.fetch": Asker.MEMBER,
    "replica.applies": Asker.MEMBER,
    "shard.append": Asker.MEMBER,
    "shard.propose": Asker.MEMBER,
    "store-beat": Asker.ENROLLED,
    "store.time": Asker.ANY,
}
"""Who may ask for what. Whoever adds a method decides it and adds it here."""


def _ids() -> bytes:
    return b"\0"


def _command(shard: int, command: bytes) -> bytes:
    return _ids() + struct.pack("<Qd", shard, 5.0) + command


def _append(shard: int, count: int, block: bytes) -> bytes:
    return _ids() + struct.pack("<QdQQQQI32s", shard, 5.0, 0, 0, 0, 0, count, bytes(32)) + block


def _packed(*fields: object, version: bytes = b"\x01") -> bytes:
    return version + msgspec.msgpack.encode(fields)


ADMIN = "spiffe://logservice.internal/cluster/c/client/nobody"

BODIES: Mapping[str, tuple[bytes, ...]] = {
    "bootstrap.probe": (b"", b"garbage"),
    "compare.digest": (_packed(1, 1, 1, 1, 2), b"\xff"),
    "compare.finding": (_packed(1, 1, 1, 1, 2, False, [[1, b"a"], [2, b"b"]]), b""),
    "hakeeper.lookup": (b"\x02" + msgspec.msgpack.encode(["access"]), b"?"),
    "hakeeper.stale_lookup": (b"\x02" + msgspec.msgpack.encode(["access"]), b"?"),
    "hakeeper.propose": (
        proposals.encode(proposals.ChangeAccess(ADMIN, "cluster", ("admin",))),
        proposals.encode(proposals.CreateShard(ShardId(9), "theirs", 1)),
        proposals.encode(proposals.ServiceHeartbeat("cn", "cn", "x:1", {})),
        proposals.encode(proposals.AllocateIds("k", 1)),
        proposals.encode(proposals.AckCommands("s1", ())),
        proposals.encode(proposals.Tick(Term(1))),
        b"",
    ),
    "hearing.announce": (_packed(1, 1, 1, 1, 1), b""),
    "hearing.vouch": (_packed(1, 1, 1, 1, 1), b"\xff"),
    "measure.echo": (bytes(8), bytes(8) + b"x" * 1000, b"", bytes(1 << 20)),
    "monitor.claims": (_packed("holds", "", False, 0, "", 100), _packed("?"), b"\xff"),
    "monitor.history": (_packed("hour", -1), _packed("day", 2**63), b"?"),
    "monitor.shard": (_packed(1), _packed(-1), b""),
    "monitor.status": (b"", b"x" * 1000),
    "replica.applies": (_packed(1, 1, 1, version=b""), b"\xff"),
    "repair.fetch": (msgspec.msgpack.encode([1, 1, 1]), msgspec.msgpack.encode([0, 1, 1]), b"?"),
    "shard.append": (
        _append(LOG, 1000, b"garbage"),
        _append(LOG, 1, encode_block([b"theirs"], 0)),
        _append(HAKEEPER_SHARD, 1, encode_block([b"theirs"], 0)),
        b"",
        b"\xff",
    ),
    "shard.propose": (
        _command(LOG, commands.encode(commands.AcquireWriter(APP, True, 0, True, "theirs"))),
        _command(LOG, commands.encode(commands.OpenSession(APP, NONCE))),
        _command(HAKEEPER_SHARD, proposals.encode(proposals.Tick(Term(1)))),
        b"",
    ),
    "store-beat": (struct.pack("<QQ", 0, 0), b""),
}
"""The bodies that the attacker tries, by method."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Store]:
    directory: Path = tmp_path_factory.mktemp("store")
    lay_out(directory)
    async with secured(directory) as made:
        yield made


def parts_of(store: Store) -> StoreParts:
    assert store._parts is not None
    return store._parts


async def stranger(store: Store, name: str = STRANGER) -> RoguePeer:
    """A peer that has a certificate of the peer CA and is known to no store."""
    papers = STORES.issue(uri("store", name))
    context = context_of(papers, STORES.pem)
    return await RoguePeer.connect(store.peer_address, context, cluster="c", store=name)


def what_is(store: Store) -> tuple[object, ...]:
    """Everything that requests could change in the store."""
    host = parts_of(store).host
    state = host.replicas.running[HAKEEPER_SHARD].state_machine
    machine = host.replicas.running[LOG].state_machine.save_snapshot()
    bounds = host.replicas.running[LOG].log_bounds
    view = state.state  # type: ignore[attr-defined]
    return (
        machine,
        bounds,
        sorted(view.stores),
        sorted(view.shards),
        sorted(view.services),
        dict(view.access),
        dict(view.id_counters),
        view.access_version,
        sorted(host.halts.all()),
    )


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_every_method_has_a_rule_and_a_body_that_attacks_it(store: Store) -> None:
    """A new method fails here until it is in both tables."""
    rules = parts_of(store).host.requests.questions
    assert {method: rule.asker for method, rule in rules.items()} == ASKERS
    assert all(
        (rule.shard_of is not None) == (rule.asker is Asker.MEMBER) for rule in rules.values()
    )
    assert set(BODIES) == set(ASKERS) - {"hakeeper.heartbeat", "store.time"}


@pytest.mark.parametrize("method", sorted(BODIES))
async def test_a_stranger_with_a_certificate_gets_nothing(store: Store, method: str) -> None:
    """Tests INV-PEER-2."""
    peer = await stranger(store)
    refused = parts_of(store).host.requests.refused
    before, counted = what_is(store), refused.total()
    for body in BODIES[method]:
        answer = await peer.ask(method, body)
        assert isinstance(answer, Refusal), (method, body, answer)
        assert answer.reason in ("PERMISSION_DENIED", "INVALID_ARGUMENT"), answer
    assert refused.total() > counted
    assert what_is(store) == before
    assert STRANGER not in parts_of(store).book.peer_addresses()
    await peer.close()


async def test_a_stranger_is_told_the_time_and_changes_nothing(store: Store) -> None:
    peer = await stranger(store)
    before = what_is(store)
    for body in (b"", b"garbage", bytes(1000)):
        answer = await peer.ask("store.time", body)
        assert isinstance(answer, bytes)
        [wall_us] = msgspec.msgpack.decode(answer)
        assert abs(wall_us - time.time_ns() // 1000) < 60_000_000
    assert what_is(store) == before
    assert STRANGER not in parts_of(store).book.peer_addresses()
    await peer.close()


async def test_methods_that_are_gone_or_never_were_are_refused_and_kept_nowhere(
    store: Store,
) -> None:
    peer = await stranger(store)
    refused = parts_of(store).host.requests.refused
    for method in ("shard.change", "shard.transfer", "", "x" * 60_000):
        answer = await peer.ask(method, _command(LOG, bytes(8)))
        assert isinstance(answer, Refusal)
        assert answer.reason == "INVALID_ARGUMENT"
    assert not any(len(method) > 100 for method, _ in refused)
    await peer.close()


async def test_what_was_refused_is_shown_by_method_and_rule(store: Store) -> None:
    peer = await stranger(store)

    def shown() -> dict[str, int]:
        assert store._monitor is not None
        return store._monitor.reporter.status().requests_refused

    before = shown()
    assert isinstance(await peer.ask("monitor.status", b""), Refusal)
    assert isinstance(await peer.ask("no such thing", b""), Refusal)
    asked = ("monitor.status/enrolled", "unknown/method")
    # The store makes a new status only when the last one is old enough.
    await eventually(lambda: all(shown().get(key, 0) > before.get(key, 0) for key in asked))
    await peer.close()


async def test_a_heartbeat_in_anothers_name_or_with_its_directories_is_refused(
    store: Store,
) -> None:
    peer = await stranger(store)
    before = what_is(store)
    theirs = parts_of(store).host.identity
    for name, incarnations in (("s1", theirs.incarnations), ("s1", (77,)), (STRANGER, (78,))):
        directories = tuple(proposals.DirectoryReport(one) for one in incarnations)
        beat = proposals.StoreHeartbeat(name, "", "x:1", "x:2", directories, 1, 1)
        answer = await peer.ask("hakeeper.heartbeat", proposals.encode(beat))
        assert isinstance(answer, Refusal)
        assert answer.reason == "PERMISSION_DENIED"
    assert what_is(store) == before
    await peer.close()


async def test_a_store_that_has_joined_is_no_member_of_anything(store: Store) -> None:
    """An enrolled store is no member yet: it learns what the cluster tells every store, and no
    more.
    """
    peer = await stranger(store, "joined")
    beat = proposals.StoreHeartbeat(
        "joined",
        "",
        "127.0.0.1:1",
        "127.0.0.1:2",
        (proposals.DirectoryReport(77),),
        1,
        1,
        labels=KNOWN.labels(),
    )
    answer = await peer.ask("hakeeper.heartbeat", proposals.encode(beat))
    assert isinstance(answer, bytes)
    before = what_is(store)
    for method in sorted(BODIES):
        if ASKERS[method] is not Asker.MEMBER:
            continue
        for body in BODIES[method]:
            found = await peer.ask(method, body)
            assert isinstance(found, Refusal), (method, body)
    for body in BODIES["hakeeper.propose"][:2]:
        assert isinstance(await peer.ask("hakeeper.propose", body), Refusal)
    assert what_is(store) == before
    await peer.close()
