"""Comparing replicas: one that differs with valid checksums is found, told, halted and repaired."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from logservice_wire.errors import (
    DeadlineExceeded,
    Halted,
    InvalidArgument,
    LogServiceError,
    NotReady,
    PermissionDenied,
    ShardNotFound,
)

from logservice import bounds
from logservice.config_change import ChangeKind, ChangeStep, ConfigChange
from logservice.ids import Incarnation, Index, Lsn, ReplicaId, ShardId
from logservice.nodehost.integrity import comparison_answers, digests
from logservice.nodehost.integrity.digests import (
    DIGEST,
    FINDING,
    DigestAnswer,
    DigestWanted,
    Finding,
)
from logservice.nodehost.peers.question import Asker
from logservice.nodehost.replica.replica import Replica
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.rsm import commands
from tests.nodehost.cluster import SHARD, request
from tests.nodehost.compared import RECORDS, Compared, compared, spoil
from tests.owners import APP
from tests.waiting import eventually


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Compared]:
    async with compared(tmp_path) as cluster:
        yield cluster


async def test_equal_replicas_are_compared_once_until_they_grow(cluster: Compared) -> None:
    await cluster.fill()
    comparer = await cluster.compare()
    assert comparer.counts["ranges"] == 1
    await comparer.run_once()
    assert (comparer.counts["ranges"], comparer.counts["passes"]) == (1, 2)
    await cluster.fill(1)
    await comparer.run_once()
    assert comparer.counts["ranges"] == 2
    assert {"wrong", "undecided", "contested", "refused"}.isdisjoint(comparer.counts)


async def test_a_quiesced_shard_is_compared_and_stays_quiesced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Compared(tmp_path, quiesce_ticks=20)
    await cluster.up()
    cluster.equip()
    await cluster.fill(3)
    leader = cluster.comparers[await cluster.leader()]
    replicas = [cluster.replica(number) for number in cluster.stores]
    await eventually(lambda: not any(replica.ticked for replica in replicas))
    woken: list[ShardId] = []
    monkeypatch.setattr(Replica, "changed", lambda replica: woken.append(replica.shard))
    await leader.run_once()
    assert leader.counts["ranges"] == 1
    assert woken == []
    await cluster.down()


@pytest.mark.parametrize("leads", [False, True])
async def test_the_replica_that_differs_halts_and_is_repaired(
    cluster: Compared, leads: bool
) -> None:
    await cluster.fill()
    number = await cluster.leader() if leads else await cluster.follower()
    host = cluster.host(number)
    index = cluster.forge(number, 17)
    comparer = await cluster.compare()
    assert comparer.counts["wrong"] == 1
    halted = host.halts.all()[SHARD]
    assert f"entries 2 to {RECORDS + 2} (LSN 1 to {RECORDS})" in halted.reason
    assert "not what a majority has" in halted.reason
    with pytest.raises(Halted):
        await host.read_log(SHARD, Lsn(17), 1 << 20)
    assert host.halts.repairing() == {SHARD}
    others = [n for n in cluster.stores if n != number]
    assert all(SHARD not in cluster.host(n).halts.all() for n in others)
    await cluster.leader()
    await cluster.repairers[number].run_once()
    assert cluster.repairers[number].counts["repaired"] == 1
    await cluster.fill(2)
    wanted = cluster.stored(others[0], 17)
    assert index == 19
    assert cluster.stored(number, 17) == wanted
    again = await cluster.compare()
    assert again.counts.get("wrong", 0) == (0 if leads else 1)
    assert SHARD not in host.halts.all()
    await cluster.stores[number].down()
    await cluster.stores[number].up()
    cluster.introduce()
    assert cluster.stored(number, 17) == wanted


async def test_a_state_made_of_what_was_wrong_is_not_begun_with(cluster: Compared) -> None:
    """Exports from the damaged entry on are removed before the repair ends."""
    forgotten: list[int] = []

    async def forget(shard: ShardId, replica: ReplicaId, index: Index) -> None:
        assert cluster.host(number).replicas.running.get(SHARD) is None
        forgotten.append(index)

    await cluster.fill()
    number = await cluster.follower()
    cluster.forge(number, 17)
    directory = cluster.replica(number).directory
    directory.forget_exports = forget
    await cluster.compare()
    await cluster.repairers[number].run_once()
    assert forgotten == [2]
    assert cluster.host(number).replicas.running.get(SHARD) is not None


async def test_a_state_that_differs_is_found_when_the_shard_pauses(cluster: Compared) -> None:
    await cluster.fill()
    number = await cluster.follower()
    spoil(cluster, number, 3)
    comparer = await cluster.compare()
    assert (comparer.counts["wrong"], comparer.counts["states"]) == (1, 1)
    host = cluster.host(number)
    assert "not what a majority has: the state after entry 42" in host.halts.all()[SHARD].reason
    await cluster.repairers[number].run_once()
    assert host.halts.repairing() == set()  # the replica is to be replaced: no peer has its state
    assert host.replicas.running.get(SHARD) is None


async def test_states_without_a_majority_halt_all(cluster: Compared) -> None:
    await cluster.fill()
    for number in (1, 2):
        spoil(cluster, number, number)
    comparer = await cluster.compare()
    assert comparer.counts["contested"] == 1
    assert all(SHARD in cluster.host(number).halts.all() for number in cluster.stores)


async def test_states_are_compared_at_one_index_in_one_form_only(
    cluster: Compared, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.fill()
    leader, number = await cluster.leader(), await cluster.follower()
    asker = cluster.host(leader).identity
    replica = cluster.replica(number)
    for index in (replica.applied - 1, replica.applied + 1):
        ask = DIGEST.encode(DigestWanted(SHARD, number, leader, 0, index))
        data = await cluster.host(number).on_request(asker, DIGEST.method, ask)
        assert answered(data, 0, index).digest == b""
    spoil(cluster, number, 3)
    save = replica.state_machine.save_snapshot
    newer = lambda: save()[:4] + b"\x7f" + save()[5:]  # noqa: E731
    monkeypatch.setattr(replica.state_machine, "save_snapshot", newer)
    comparer = await cluster.compare()
    assert "wrong" not in comparer.counts
    assert cluster.host(number).halts.all() == {}
    assert SHARD not in comparer._compared


async def test_three_different_replicas_halt_all_until_a_person_decides(
    cluster: Compared, caplog: pytest.LogCaptureFixture
) -> None:
    """INV-COMPARE-3."""
    await cluster.fill()
    first, second = [n for n in cluster.stores if n != await cluster.leader()]
    cluster.forge(first, 17)
    cluster.forge(second, 18)
    comparer = await cluster.compare()
    assert comparer.counts["contested"] == 1
    assert caplog.text.count("halts until a person decides") == 3
    for number in cluster.stores:
        host = cluster.host(number)
        assert "no majority of replicas agrees on entries" in host.halts.all()[SHARD].reason
        with pytest.raises(Halted):
            await host.append(SHARD, request(), 1.0)
        with pytest.raises(Halted):
            await host.read_index(SHARD, 1.0)
        await cluster.repairers[number].run_once()
        assert host.replicas.running.get(SHARD) is None
        assert host.halts.repairing() == set()
    for number in cluster.stores:
        await cluster.stores[number].down()
        await cluster.stores[number].up()
        assert SHARD in cluster.host(number).halts.all()


async def digest_of(cluster: Compared, number: int, asker: int, low: int, high: int) -> bytes:
    """The answer of one member to another about a range."""
    wanted = DIGEST.encode(DigestWanted(SHARD, number, asker, low, high))
    data = await cluster.host(number).on_request(
        cluster.host(asker).identity, DIGEST.method, wanted
    )
    return answered(data, low, high).digest


async def test_a_replica_that_halts_while_it_is_read_still_says_what_it_had(
    cluster: Compared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise one of three different replicas might not hear enough, and not halt."""
    await cluster.fill(5)
    halting, asking, leading = 1, 2, 3
    cluster.forge(halting, 1)
    cluster.forge(asking, 2)
    rows = [(n, await digest_of(cluster, n, n % 3 + 1, 2, 4)) for n in (1, 2, 3)]
    original, going_on, reads = digests.read_digest, asyncio.Event(), 0

    async def slow_at_first(replica: Replica, low: Index, high: Index) -> bytes | None:
        nonlocal reads
        reads += 1
        if reads == 1:
            await going_on.wait()
        return await original(replica, low, high)

    monkeypatch.setattr(comparison_answers, "read_digest", slow_at_first)
    asked = asyncio.create_task(digest_of(cluster, halting, asking, 2, 4))
    await eventually(lambda: reads == 1)
    finding = FINDING.encode(Finding(SHARD, halting, leading, 2, 4, True, rows))
    host = cluster.host(halting)
    await host.on_request(cluster.host(leading).identity, FINDING.method, finding)
    assert SHARD in host.halts.all()
    going_on.set()
    assert await asked == dict(rows)[halting]


async def test_a_follower_counts_the_digest_of_a_member_that_has_applied_more(
    cluster: Compared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower hears of a commit later than the leader and the other follower."""
    await cluster.fill(5)
    number = await cluster.follower()
    host, replica = cluster.host(number), cluster.replica(number)
    answer = DigestAnswer(1, replica.raft.commit + 1, b"a" * 16)

    async def ahead(target: str, method: str, body: bytes, timeout_s: float) -> bytes:
        return DIGEST.encode_answer(answer)

    monkeypatch.setattr(host.transport, "request", ahead)
    told = await digests.ask_others(host.requests, replica, Index(2), Index(4))
    assert set(told.values()) == {b"a" * 16}
    assert len(told) == 2


async def test_a_wrong_learner_is_found_too(tmp_path: Path) -> None:
    cluster = Compared(tmp_path, stores=4)
    await cluster.up()
    await cluster.fill(10)
    host = cluster.host(await cluster.leader())
    store = cluster.stores[4]
    learner = ReplicaId(4)
    change = ConfigChange(
        (ChangeStep(ChangeKind.ADD_LEARNER, learner, store.store_id, store.incarnation),),
        expected_epoch=host.replicas.running[SHARD].raft.membership.change_epoch,
    )
    membership = await host.router.change_membership(SHARD, change, 30.0)
    await cluster.host(4).replicas.start(SHARD, learner, membership, join=True)
    await cluster.fill(10)
    cluster.equip()
    cluster.forge(4, 7)
    comparer = await cluster.compare()
    assert comparer.counts["wrong"] == 1
    assert SHARD in cluster.host(4).halts.all()
    await cluster.repairers[4].run_once()
    await cluster.level(20)
    assert cluster.stored(4, 7) == cluster.stored(1, 7)
    await cluster.down()


async def test_ranges_follow_each_other_and_truncation_moves_the_first_one(
    cluster: Compared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "COMPARE_RANGE_ENTRIES", 8)
    await cluster.fill()
    comparer = await cluster.compare()
    applied = cluster.host(await cluster.leader()).replicas.running[SHARD].applied
    assert comparer.counts["ranges"] == -(-applied // 8)
    monkeypatch.setattr(bounds, "COMPARE_RANGE_BYTES", 1500)
    await cluster.fill(1)
    before = comparer.counts["ranges"]
    await comparer.run_once()
    assert comparer.counts["ranges"] - before > applied // 3
    # One replica compacts: the others do not compare entries that it no longer has.
    number = await cluster.follower()
    leader = cluster.host(await cluster.leader())
    snapshot = cluster.replica(number).applied_snapshot()
    await cluster.fill(4)
    await leader.propose(SHARD, commands.encode(commands.Truncate(APP, Lsn(43), 0)), 30.0)
    await leader.append(SHARD, request(), 30.0)
    await cluster.level(46)
    cluster.forge(await cluster.leader(), 5)
    await cluster.replica(number).install_snapshot(snapshot, Lsn(43))
    assert cluster.replica(number).reader.first_index() > 40
    before = comparer.counts["ranges"]
    await comparer.run_once()
    assert 0 < comparer.counts["ranges"] - before < 9
    assert "wrong" not in comparer.counts
    assert comparer._compared[SHARD].through == leader.replicas.running[SHARD].applied


async def test_compaction_in_the_middle_of_a_range(cluster: Compared) -> None:
    await cluster.fill()
    leader = await cluster.leader()
    host = cluster.host(leader)
    await host.propose(SHARD, commands.encode(commands.Truncate(APP, Lsn(40), 0)), 30.0)
    snapshot = host.replicas.running[SHARD].applied_snapshot()
    await cluster.fill(5)
    under_way = asyncio.ensure_future(cluster.comparers[leader].run_once())
    await asyncio.sleep(0)
    await host.replicas.running[SHARD].install_snapshot(snapshot, Lsn(40))
    await under_way
    assert host.halts.all() == {}
    assert (
        cluster.comparers[leader]._compared[SHARD].through == host.replicas.running[SHARD].applied
    )


async def test_the_leader_changes_in_the_middle(cluster: Compared) -> None:
    await cluster.fill()
    leader = await cluster.leader()
    other = await cluster.follower()
    cluster.forge(other, 17)
    asked = asyncio.Event()
    go_on = asyncio.Event()
    host = cluster.host(leader)
    original = host.transport.request

    async def slow(target: str, method: str, body: bytes, timeout_s: float) -> bytes:
        asked.set()
        await go_on.wait()
        return await original(target, method, body, timeout_s)

    host.transport.request = slow  # type: ignore[method-assign]
    under_way = asyncio.ensure_future(cluster.comparers[leader].run_once())
    await asked.wait()
    (target,) = {1, 2, 3} - {leader, other}
    await host.router.transfer_leadership(SHARD, ReplicaId(target), 30.0)
    go_on.set()
    await under_way
    assert SHARD not in cluster.comparers[leader]._compared
    host.transport.request = original  # type: ignore[method-assign]
    successor = cluster.replica(target)
    await eventually(lambda: successor.ready_to_lead)
    await cluster.comparers[target].run_once()
    assert SHARD in cluster.host(other).halts.all()


async def test_a_flipped_bit_on_the_way_is_the_readers_own_fault(cluster: Compared) -> None:
    """An entry that does not verify is damage like any other: it is attributed, and the replica
    halts and is repaired.
    """
    await cluster.fill()
    number = await cluster.follower()
    place = cluster.replica(number).log._state.index.place(9)
    (path,) = (cluster.stores[number].directory / "segments").glob("*.segment")
    with path.open("r+b") as file:
        file.seek(place.offset + 80)
        byte = file.read(1)
        file.seek(place.offset + 80)
        file.write(bytes([byte[0] ^ 1]))
    comparer = await cluster.compare()
    assert "wrong" not in comparer.counts
    await eventually(lambda: SHARD in cluster.host(number).halts.all())
    assert "checksum" in cluster.host(number).halts.all()[SHARD].reason


# --- what peers may send --------------------------------------------------------------------------


def answered(data: bytes, low: int, high: int) -> DigestAnswer:
    return DIGEST.decode_answer(data, DigestWanted(SHARD, 1, 2, low, high))


def encoded(*fields: object) -> bytes:
    return digests._VERSION + msgspec.msgpack.encode(list(fields))


async def test_a_member_answers_members_only_and_survives_garbage(cluster: Compared) -> None:
    await cluster.fill(5)
    host, asker = cluster.host(1), cluster.host(2).identity
    good = DIGEST.encode(DigestWanted(SHARD, 1, 2, 2, 4))
    answer = answered(await host.on_request(asker, DIGEST.method, good), 2, 4)
    assert len(answer.digest) == 16
    beyond = DIGEST.encode(DigestWanted(SHARD, 1, 2, 900, 901))
    empty = answered(await host.on_request(asker, DIGEST.method, beyond), 900, 901)
    assert empty.digest == b""
    for peer, body in (
        (replace(asker, incarnations=(Incarnation(9),)), good),
        (cluster.host(3).identity, good),
        (asker, b"\xff\x00"),
        (asker, b""),
        (asker, encoded(SHARD, 1, 2, 1)),
        (asker, encoded(SHARD, 1, 2, 1, 3, "more")),
        (asker, encoded(SHARD, 1, 2, "one", 3)),
        (asker, b"\x02" + good[1:]),
        (asker, encoded(SHARD, 1, 2, 0, 0)),
        (asker, encoded(SHARD, 1, 2, 3, 3)),
        (asker, encoded(SHARD, 1, 2, 1, 2 + bounds.COMPARE_RANGE_ENTRIES)),
        (asker, encoded(SHARD, 1, 9, 1, 3)),
        (asker, encoded(SHARD, 3, 2, 1, 3)),
        (asker, encoded(99, 1, 2, 1, 3)),
        (asker, encoded(SHARD, 1, 2, -5, 3)),
    ):
        with pytest.raises(LogServiceError):
            await host.on_request(peer, DIGEST.method, body)
    assert await host.on_request(asker, DIGEST.method, good)
    widest = encoded(SHARD, 1, 2, 1, 1 + bounds.COMPARE_RANGE_ENTRIES)
    assert await host.on_request(asker, DIGEST.method, widest)


async def test_a_finding_that_is_not_so_halts_nobody(cluster: Compared) -> None:
    """INV-COMPARE-1."""
    await cluster.fill(5)
    host, asker = cluster.host(1), cluster.host(2).identity
    ask = DIGEST.encode(DigestWanted(SHARD, 1, 2, 2, 4))
    data = await host.on_request(asker, DIGEST.method, ask)
    own = answered(data, 2, 4).digest
    a, b = b"a" * 16, b"b" * 16

    def finding(*digests: tuple[int, bytes], waited: bool = False) -> bytes:
        return FINDING.encode(Finding(SHARD, 1, 2, 2, 4, waited, list(digests)))

    for body in (
        finding((1, a), (2, b), (3, b)),  # this replica has another digest
        finding((2, b), (3, b)),  # its own digest is missing
        finding((1, own), (1, a), (2, b), (3, b)),  # its digest is there twice
        finding(*((n, a) for n in range(1, 40))),
        encoded(SHARD, 1, 2, 1, 3, False, [[1]]),
        b"",
    ):
        with pytest.raises(InvalidArgument):
            await host.on_request(asker, FINDING.method, body)
    with pytest.raises(PermissionDenied):
        await host.on_request(
            cluster.host(3).identity, FINDING.method, finding((1, own), (2, b), (3, b))
        )
    for body in (
        finding((1, own), (2, own), (3, b)),  # another replica differs
        finding((1, own), (2, b)),  # no replica can tell yet
        finding((1, own), (2, own), (3, own), waited=True),
    ):
        await host.on_request(asker, FINDING.method, body)
    assert host.halts.all() == {}
    # The store asks the others itself: they have the same entries, whatever a member says of them.
    for waited in (False, True):
        await host.on_request(
            asker, FINDING.method, finding((1, own), (2, b), (3, b), waited=waited)
        )
        await host.on_request(
            asker, FINDING.method, finding((1, own), (2, a), (3, b), waited=waited)
        )
    assert host.halts.all() == {}
    for number in (2, 3):
        cluster.forge(number, 1)
    await host.on_request(asker, FINDING.method, finding((1, own), (2, b), (3, b)))
    assert SHARD in host.halts.all()
    with pytest.raises((Halted, ShardNotFound)):
        await host.on_request(asker, FINDING.method, finding((1, own), (2, b), (3, b)))


async def test_one_liar_halts_neither_of_two_honest_replicas(
    cluster: Compared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The liar answers every store with another digest, and tells each that it is alone."""
    await cluster.fill(5)
    liar = 3
    answers = iter(range(1000))

    async def lie(peer: PeerIdentity, wanted: DigestWanted) -> DigestAnswer:
        return DigestAnswer(1, 6, b"%016d" % next(answers))

    cluster.host(liar).requests.register(replace(DIGEST, asker=Asker.ENROLLED), lie)
    for number in (1, 2):
        host, asker = cluster.host(number), cluster.host(liar).identity
        ask = DIGEST.encode(DigestWanted(SHARD, number, liar, 2, 4))
        own = answered(await host.on_request(asker, DIGEST.method, ask), 2, 4).digest
        for waited in (False, True, True):
            other = 3 - number
            rows = [(number, own), (other, b"a" * 16), (liar, b"b" * 16)]
            finding = Finding(SHARD, number, liar, 2, 4, waited, rows)
            await host.on_request(asker, FINDING.method, FINDING.encode(finding))
        # With the third store away, too, this store waits its own minute and does not believe the
        # liar.
        monkeypatch.setattr(host.transport, "request", nobody)
        for _ in range(2):
            rows = [(number, own), (liar, b"b" * 16)]
            finding = Finding(SHARD, number, liar, 2, 4, True, rows)
            await host.on_request(asker, FINDING.method, FINDING.encode(finding))
        monkeypatch.undo()
        assert host.halts.all() == {}


async def nobody(target: str, method: str, body: bytes, timeout_s: float) -> bytes:
    if target == "store-3":
        return DIGEST.encode_answer(DigestAnswer(1, 6, b"c" * 16))
    raise NotReady("away")


@pytest.mark.parametrize(
    "answer",
    [
        b"garbage",
        b"",
        b"\x02" + DIGEST.encode_answer(DigestAnswer(1, 6, b"a" * 16))[1:],
        DIGEST.encode_answer(DigestAnswer(0, 6, b"a" * 16)),
        DIGEST.encode_answer(DigestAnswer(9, 6, b"")),
        DIGEST.encode_answer(DigestAnswer(1, 6, b"a" * 15)),
        DIGEST.encode_answer(DigestAnswer(1, 2, b"a" * 16)),
        DIGEST.encode_answer(DigestAnswer(3, 6, b"a" * 16)),
        DIGEST.encode_answer(DigestAnswer(1, 6, b"a" * 22)),
        DIGEST.encode_answer(DigestAnswer(2**62, 2**62, b"")),
    ],
)
async def test_answers_that_are_none_count_for_nothing(cluster: Compared, answer: bytes) -> None:
    await cluster.fill(5)
    leader = await cluster.leader()
    host = cluster.host(leader)
    original = host.transport.request
    liar = cluster.stores[await cluster.follower()].store_id

    async def lying(target: str, method: str, body: bytes, timeout_s: float) -> bytes:
        return answer if target == liar else await original(target, method, body, timeout_s)

    host.transport.request = lying  # type: ignore[method-assign]
    comparer = await cluster.compare()
    assert comparer.counts["refused"] == 2  # once for the entries, once for the state
    assert comparer.counts["ranges"] == 1
    assert "wrong" not in comparer.counts
    assert SHARD not in comparer._compared


async def test_peers_that_ask_too_much_are_told_so(
    cluster: Compared, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.fill(5)
    monkeypatch.setattr(bounds, "COMPARE_SERVED_MAX", 0)
    host = cluster.host(1)
    good = DIGEST.encode(DigestWanted(SHARD, 1, 2, 2, 4))
    with pytest.raises(LogServiceError, match="too many"):
        await host.on_request(cluster.host(2).identity, DIGEST.method, good)


async def test_a_store_that_cannot_be_told_is_told_later(cluster: Compared) -> None:
    await cluster.fill()
    leader, number = await cluster.leader(), await cluster.follower()
    cluster.forge(number, 17)
    host = cluster.host(leader)
    original = host.transport.request

    async def lost(target: str, method: str, body: bytes, timeout_s: float) -> bytes:
        if method == FINDING.method:
            raise DeadlineExceeded("lost")
        return await original(target, method, body, timeout_s)

    host.transport.request = lost  # type: ignore[method-assign]
    comparer = await cluster.compare()
    assert comparer.undecided == [SHARD]
    assert cluster.host(number).halts.all() == {}
    host.transport.request = original  # type: ignore[method-assign]
    comparer.timer.due_s = 2.0**40
    await comparer.run_once()
    assert SHARD in cluster.host(number).halts.all()
    assert comparer.undecided == []


async def test_a_member_that_does_not_answer_is_not_waited_for(
    cluster: Compared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """COMPARE_REQUEST_TIMEOUT_S is made short: the range still has to be compared."""
    monkeypatch.setattr(bounds, "COMPARE_REQUEST_TIMEOUT_S", 0.05)
    await cluster.fill(5)
    await cluster.leader()
    requests = cluster.host(await cluster.follower()).requests
    _, heard = requests._handlers[DIGEST.method]

    async def hangs(peer: PeerIdentity, wanted: DigestWanted) -> DigestAnswer:
        await asyncio.Event().wait()
        return DigestAnswer(1, 0, b"")

    requests.register(DIGEST, hangs)
    comparer = await cluster.compare()
    assert SHARD not in comparer._compared
    requests.register(DIGEST, heard)
    monkeypatch.undo()
    comparer = await cluster.compare()
    assert SHARD in comparer._compared


async def test_a_store_that_does_not_answer_a_finding_is_told_later(
    cluster: Compared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """COMPARE_FINDING_TIMEOUT_S is made short: the pass goes on."""
    monkeypatch.setattr(bounds, "COMPARE_FINDING_TIMEOUT_S", 0.05)
    await cluster.fill()
    await cluster.leader()
    number = await cluster.follower()
    cluster.forge(number, 17)
    requests = cluster.host(number).requests
    _, heard = requests._handlers[FINDING.method]

    async def hangs(peer: PeerIdentity, found: Finding) -> None:
        await asyncio.Event().wait()

    requests.register(FINDING, hangs)
    comparer = await cluster.compare()
    assert comparer.undecided == [SHARD]
    assert cluster.host(number).halts.all() == {}
    requests.register(FINDING, heard)
    monkeypatch.undo()
    comparer.timer.due_s = 2.0**40
    await comparer.run_once()
    assert SHARD in cluster.host(number).halts.all()
