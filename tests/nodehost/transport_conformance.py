"""The promises of every Transport: both implementations run these tests.

A subclass provides the `world` fixture, which makes transports that can reach each other.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import pytest
from logservice_wire.errors import (
    DeadlineExceeded,
    Fenced,
    NotReady,
    UnknownOutcome,
    WrongCluster,
)

from logservice.bounds import PEER_FRAME_BYTES_MAX
from logservice.entry import Entry, EntryKind
from logservice.ids import ClusterId, Incarnation, Index, Lsn, ReplicaId, ShardId, StoreId, Term
from logservice.membership import Membership
from logservice.nodehost.transport.seam import PeerIdentity, Transport
from logservice.nodehost.transport.wire import chunks
from logservice.raft.messages import AppendEntries, Heartbeat, InstallSnapshot, Message
from logservice.snapshot import Snapshot

A, B, C = StoreId("store-a"), StoreId("store-b"), StoreId("store-c")
CLUSTER = ClusterId("cluster-1")


def identity(store: StoreId, *, cluster: str = CLUSTER, boot: int = 1) -> PeerIdentity:
    return PeerIdentity(ClusterId(cluster), store, (Incarnation(100 + len(store)),), boot)


def heartbeat(number: int, context: bytes = b"") -> Heartbeat:
    return Heartbeat(
        to=ReplicaId(2), sender=ReplicaId(1), term=Term(3), commit=Index(number), context=context
    )


def append(number: int, payload: bytes) -> AppendEntries:
    entry = Entry(Term(3), Index(number), Lsn(number), 1, EntryKind.BLOCK, payload)
    return AppendEntries(
        to=ReplicaId(2),
        sender=ReplicaId(1),
        term=Term(3),
        prev_index=Index(number - 1),
        prev_term=Term(3),
        entries=(entry,),
        commit=Index(0),
    )


def install(size: int) -> InstallSnapshot:
    """A snapshot with a state of `size` bytes."""
    membership = Membership(voters=(ReplicaId(1), ReplicaId(2)))
    state = (b"%d bytes " % size * (size // 8 + 1))[:size]
    return InstallSnapshot(
        to=ReplicaId(2),
        sender=ReplicaId(1),
        term=Term(2),
        snapshot=Snapshot(Index(9), Term(2), Lsn(77), membership, state),
    )


class Recorder:
    """A handler that remembers everything and answers by `answer`."""

    def __init__(self) -> None:
        self.batches: list[tuple[PeerIdentity, list[tuple[ShardId, Message]]]] = []
        self.unreachable: list[StoreId] = []
        self.requests: list[tuple[PeerIdentity, str, bytes]] = []
        self.answer: Callable[[str, bytes], Awaitable[bytes]] | None = None
        self._changed = asyncio.Event()

    @property
    def messages(self) -> list[tuple[ShardId, Message]]:
        return [one for _, batch in self.batches for one in batch]

    def on_messages(self, peer: PeerIdentity, batch: Sequence[tuple[ShardId, Message]]) -> None:
        self.batches.append((peer, list(batch)))
        self._changed.set()

    def on_unreachable(self, store: StoreId) -> None:
        self.unreachable.append(store)
        self._changed.set()

    async def on_request(self, peer: PeerIdentity, method: str, body: bytes) -> bytes:
        self.requests.append((peer, method, body))
        self._changed.set()
        if self.answer is not None:
            return await self.answer(method, body)
        return method.encode() + b":" + body

    async def until(self, condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
        async with asyncio.timeout(timeout_s):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


class World(Protocol):
    """Makes transports; everything it made is stopped at the end of the test."""

    def make(self, peer: PeerIdentity, *, address: str = "") -> Transport: ...


async def started(
    world: World, store: StoreId, *, cluster: str = CLUSTER, boot: int = 1, address: str = ""
) -> tuple[Transport, Recorder]:
    transport = world.make(identity(store, cluster=cluster, boot=boot), address=address)
    recorder = Recorder()
    await transport.start(recorder)
    return transport, recorder


async def pair(world: World) -> tuple[Transport, Recorder, Transport, Recorder]:
    a, on_a = await started(world, A)
    b, on_b = await started(world, B)
    a.set_address(B, b.address)
    b.set_address(A, a.address)
    return a, on_a, b, on_b


class TransportConformance:
    """See the module."""

    async def test_messages_arrive_whole_and_in_order(self, world: World) -> None:
        a, _, _b, on_b = await pair(world)
        sent: list[tuple[ShardId, Message]] = []
        for number in range(1, 301):
            shard = ShardId(number % 3)
            message = heartbeat(number, b"context %d" % number)
            assert a.send(B, shard, message)
            sent.append((shard, message))
            if number % 7 == 0:
                a.flush()
        a.flush()
        await on_b.until(lambda: len(on_b.messages) == 300)
        assert on_b.messages == sent
        assert {peer for peer, _ in on_b.batches} == {identity(A)}

    async def test_order_of_a_shard_holds_when_sizes_differ(self, world: World) -> None:
        a, _, _b, on_b = await pair(world)
        sizes = (10, 200_000, 0, 70_000, 30, 1_500_000, 5)
        for number in range(1, 71):
            size = sizes[number % len(sizes)]
            a.send(B, ShardId(1), append(number, bytes([number % 251]) * size))
            a.send(B, ShardId(2), heartbeat(number))
            if number % 5 == 0:
                a.flush()
                await asyncio.sleep(0)
        a.flush()
        await on_b.until(lambda: len(on_b.messages) == 140)
        appends = [m for shard, m in on_b.messages if shard == 1]
        assert [m.prev_index for m in appends if isinstance(m, AppendEntries)] == list(range(70))
        for message in appends:
            assert isinstance(message, AppendEntries)
            (entry,) = message.entries
            assert entry.payload == bytes([entry.index % 251]) * sizes[entry.index % len(sizes)]
        others = [m.commit for shard, m in on_b.messages if isinstance(m, Heartbeat)]
        assert others == list(range(1, 71))

    async def test_both_directions_at_once(self, world: World) -> None:
        a, on_a, b, on_b = await pair(world)
        for number in range(1, 51):
            a.send(B, ShardId(1), heartbeat(number))
            b.send(A, ShardId(1), heartbeat(1000 + number))
            a.flush()
            b.flush()
        await on_a.until(lambda: len(on_a.messages) == 50)
        await on_b.until(lambda: len(on_b.messages) == 50)
        assert on_a.batches[0][0].store_id == B
        assert on_b.batches[0][0].store_id == A

    async def test_a_snapshot_arrives(self, world: World) -> None:
        a, _, _b, on_b = await pair(world)
        snapshot = Snapshot(
            Index(9),
            Term(2),
            Lsn(77),
            Membership(voters=(ReplicaId(1), ReplicaId(2))),
            bytes(range(256)) * 8000,
        )
        message = InstallSnapshot(to=ReplicaId(2), sender=ReplicaId(1), snapshot=snapshot)
        assert a.send(B, ShardId(5), message)
        a.flush()
        await on_b.until(lambda: len(on_b.messages) == 1)
        assert on_b.messages == [(5, message)]

    async def test_a_snapshot_larger_than_a_frame_arrives(self, world: World) -> None:
        """Messages that are sent beside the snapshot arrive, too, and in order."""
        a, _, _b, on_b = await pair(world)
        message = install(PEER_FRAME_BYTES_MAX + 1)
        assert a.send(B, ShardId(5), message)
        for number in range(1, 11):
            assert a.send(B, ShardId(6), heartbeat(number))
            assert a.send(B, ShardId(7), install(number * 300_000))
            a.flush()
        await on_b.until(lambda: len(on_b.messages) >= 12 and (5, message) in on_b.messages)
        assert on_b.messages.count((ShardId(5), message)) == 1
        others = [m for shard, m in on_b.messages if shard == 6]
        assert others == [heartbeat(number) for number in range(1, 11)]

    async def test_a_snapshot_at_the_bound_and_one_beyond(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A snapshot beyond the bound is not sent, and what comes afterwards is."""
        monkeypatch.setattr(chunks, "PEER_SNAPSHOT_BYTES_MAX", 3_000_000)
        largest = 3_000_000 - chunks.AROUND_BYTES
        a, _, _b, on_b = await pair(world)
        assert a.send(B, ShardId(5), install(largest + 1)) is False
        assert a.send(B, ShardId(5), install(largest))
        a.flush()
        await on_b.until(lambda: len(on_b.messages) == 1)
        assert on_b.messages == [(5, install(largest))]

    async def test_unknown_store_drops(self, world: World) -> None:
        a, on_a = await started(world, A)
        assert a.send(C, ShardId(1), heartbeat(1)) is False
        a.flush()
        assert on_a.messages == []
        with pytest.raises(NotReady):
            await a.request(C, "x", b"", 1.0)

    async def test_nothing_is_delivered_inside_flush(self, world: World) -> None:
        a, _, _b, on_b = await pair(world)
        a.send(B, ShardId(1), heartbeat(1))
        a.flush()
        assert on_b.messages == []
        await on_b.until(lambda: len(on_b.messages) == 1)

    async def test_request_is_answered(self, world: World) -> None:
        a, on_a, b, on_b = await pair(world)
        assert await a.request(B, "echo", b"body", 30.0) == b"echo:body"
        assert await b.request(A, "other", b"", 30.0) == b"other:"
        assert on_b.requests == [(identity(A), "echo", b"body")]
        assert on_a.requests == [(identity(B), "other", b"")]

    async def test_requests_are_answered_in_any_order(self, world: World) -> None:
        a, _, _b, on_b = await pair(world)
        gates = {number: asyncio.Event() for number in range(50)}

        async def answer(method: str, body: bytes) -> bytes:
            await gates[int(body)].wait()
            return body * 2

        on_b.answer = answer
        tasks = [asyncio.create_task(a.request(B, "n", b"%d" % n, 30.0)) for n in range(50)]
        await on_b.until(lambda: len(on_b.requests) == 50)
        assert [int(body) for _, _, body in on_b.requests] == list(range(50))
        for number in reversed(range(50)):
            gates[number].set()
        assert await asyncio.gather(*tasks) == [b"%d" % n * 2 for n in range(50)]

    async def test_large_bodies_keep_their_order(self, world: World) -> None:
        a, _, _b, on_b = await pair(world)
        sizes = [3_000_000, 10, 100_000, 0, 2_000_000, 7]
        tasks = [
            asyncio.create_task(a.request(B, str(n), bytes([n]) * size, 30.0))
            for n, size in enumerate(sizes)
        ]
        answers = await asyncio.gather(*tasks)
        for number, size in enumerate(sizes):
            assert answers[number] == b"%d:" % number + bytes([number]) * size
        assert [method for _, method, _ in on_b.requests] == [str(n) for n in range(len(sizes))]

    async def test_request_to_a_bare_address(self, world: World) -> None:
        a, _ = await started(world, A)
        b, on_b = await started(world, B)
        assert await a.request(b.address, "join", b"1", 30.0) == b"join:1"
        assert await a.request(b.address, "join", b"2", 30.0) == b"join:2"
        assert [peer.store_id for peer, _, _ in on_b.requests] == [A, A]
        assert a.send(B, ShardId(1), heartbeat(1)) is False, "an address teaches no store"

    async def test_request_to_oneself(self, world: World) -> None:
        a, on_a = await started(world, A)
        assert await a.request(A, "self", b"x", 30.0) == b"self:x"
        assert await a.request(a.address, "self", b"y", 30.0) == b"self:y"
        assert on_a.requests[0][0] == identity(A)

    async def test_typed_errors_cross(self, world: World) -> None:
        a, _, _b, on_b = await pair(world)

        async def answer(method: str, body: bytes) -> bytes:
            raise Fenced("a newer writer", epoch=7, holder="someone else")

        on_b.answer = answer
        with pytest.raises(Fenced) as caught:
            await a.request(B, "append", b"", 30.0)
        assert caught.value.message == "a newer writer"
        assert caught.value.metadata == {"epoch": "7", "holder": "someone else"}

    async def test_other_exceptions_are_an_unknown_outcome(self, world: World) -> None:
        a, _, _b, on_b = await pair(world)

        async def answer(method: str, body: bytes) -> bytes:
            raise KeyError("a bug")

        on_b.answer = answer
        with pytest.raises(UnknownOutcome):
            await a.request(B, "append", b"", 30.0)

    async def test_deadline(self, world: World) -> None:
        a, _, _b, on_b = await pair(world)
        cancelled = asyncio.Event()

        async def answer(method: str, body: bytes) -> bytes:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.set()
                raise
            return b""

        on_b.answer = answer
        with pytest.raises(DeadlineExceeded):
            await a.request(B, "slow", b"", 0.1)
        async with asyncio.timeout(60):
            await cancelled.wait()
        on_b.answer = None
        assert await a.request(B, "after", b"", 30.0) == b"after:"

    async def test_a_cancelled_caller_disturbs_nobody(self, world: World) -> None:
        a, _, _b, on_b = await pair(world)
        gate = asyncio.Event()

        async def answer(method: str, body: bytes) -> bytes:
            await gate.wait()
            return body

        on_b.answer = answer
        task = asyncio.create_task(a.request(B, "x", b"1", 30.0))
        other = asyncio.create_task(a.request(B, "x", b"2", 30.0))
        await on_b.until(lambda: len(on_b.requests) == 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.set()
        assert await other == b"2"

    async def test_nobody_there_is_surely_not_delivered(self, world: World) -> None:
        a, _ = await started(world, A)
        b, on_b = await started(world, B)
        address = b.address
        await b.stop()
        a.set_address(B, address)
        with pytest.raises(NotReady):
            await a.request(B, "x", b"", 30.0)
        with pytest.raises(NotReady):
            await a.request(address, "x", b"", 30.0)
        assert on_b.requests == []

    async def test_a_peer_that_stops_leaves_the_outcome_unknown(self, world: World) -> None:
        a, _, b, on_b = await pair(world)

        async def answer(method: str, body: bytes) -> bytes:
            await asyncio.sleep(60)
            return b""

        on_b.answer = answer
        task = asyncio.create_task(a.request(B, "x", b"", 30.0))
        await on_b.until(lambda: len(on_b.requests) == 1)
        await b.stop()
        with pytest.raises(UnknownOutcome):
            await task

    async def test_stopping_leaves_the_outcome_unknown(self, world: World) -> None:
        a, _, _b, on_b = await pair(world)

        async def answer(method: str, body: bytes) -> bytes:
            await asyncio.sleep(60)
            return b""

        on_b.answer = answer
        task = asyncio.create_task(a.request(B, "x", b"", 30.0))
        await on_b.until(lambda: len(on_b.requests) == 1)
        await a.stop()
        with pytest.raises(UnknownOutcome):
            await task
        with pytest.raises(NotReady):
            await a.request(B, "x", b"", 1.0)
        assert a.send(B, ShardId(1), heartbeat(1)) is False

    async def test_a_restarted_peer_is_found_again(self, world: World) -> None:
        a, on_a, b, on_b = await pair(world)
        a.send(B, ShardId(1), heartbeat(1))
        a.flush()
        await on_b.until(lambda: len(on_b.messages) == 1)
        address = b.address
        await b.stop()
        number = 1
        async with asyncio.timeout(60):
            while not on_a.unreachable:
                number += 1
                a.send(B, ShardId(1), heartbeat(number))
                a.flush()
                await asyncio.sleep(0.01)
        assert on_a.unreachable[0] == B
        _, on_again = await started(world, B, boot=2, address=address)
        async with asyncio.timeout(60):
            while not on_again.messages:
                number += 1
                a.send(B, ShardId(1), heartbeat(number))
                a.flush()
                await asyncio.sleep(0.01)
        assert await a.request(B, "x", b"", 30.0) == b"x:"
        commits = [m.commit for _, m in on_again.messages if isinstance(m, Heartbeat)]
        assert commits == sorted(commits)

    async def test_another_identity_of_the_same_process(self, world: World) -> None:
        """What is sent after `restate` states it, and so do requests, also those to itself."""
        a, on_a, b, on_b = await pair(world)
        before = identity(A)
        after = dataclasses.replace(before, incarnations=(*before.incarnations, Incarnation(99)))

        async def heard_as(wanted: PeerIdentity) -> None:
            # What is sent while the connection is made anew may be lost.
            while not on_b.batches or on_b.batches[-1][0] != wanted:
                a.send(B, ShardId(1), heartbeat(1))
                a.flush()
                await asyncio.sleep(0.01)

        await heard_as(before)
        a.restate(after)
        await heard_as(after)
        b.send(A, ShardId(1), heartbeat(3))
        b.flush()
        await on_a.until(lambda: bool(on_a.messages))
        await a.request(B, "echo", b"", 60.0)
        await a.request(A, "echo", b"", 60.0)
        assert on_b.requests[-1][0] == on_a.requests[-1][0] == after
        a.restate(before)
        await heard_as(before)

    async def test_a_store_that_moves_is_followed(self, world: World) -> None:
        a, _, b, on_b = await pair(world)
        assert await a.request(B, "x", b"", 30.0) == b"x:"
        await b.stop()
        moved, on_moved = await started(world, B, boot=2)
        a.set_address(B, moved.address)
        assert await a.request(B, "y", b"", 30.0) == b"y:"
        a.send(B, ShardId(1), heartbeat(5))
        a.flush()
        await on_moved.until(lambda: len(on_moved.messages) == 1)
        assert on_b.messages == []

    async def test_other_addresses_are_tried_beside_the_learned_one(self, world: World) -> None:
        """Nobody listens at the first address, and another store listens at the second."""
        a, _ = await started(world, A)
        b, _ = await started(world, B)
        c, on_c = await started(world, C)
        gone = b.address
        await b.stop()
        moved, on_moved = await started(world, B, boot=2)
        a.set_address(B, gone, c.address, moved.address)
        assert await a.request(B, "x", b"", 30.0) == b"x:"
        a.send(B, ShardId(1), heartbeat(5))
        a.flush()
        await on_moved.until(lambda: len(on_moved.messages) == 1)
        assert on_c.messages == on_c.requests == []

    async def test_a_store_is_followed_from_one_of_its_addresses_to_the_other(
        self, world: World
    ) -> None:
        """The way back works, too: the turn does not end with the first success."""
        a, _ = await started(world, A)
        b, _ = await started(world, B)
        first = b.address
        await b.stop()
        b, _ = await started(world, B, boot=2)
        second = b.address
        a.set_address(B, first, second)
        assert await a.request(B, "x", b"", 30.0) == b"x:"
        for boot, address in ((3, first), (4, second)):
            await b.stop()
            b, on_b = await started(world, B, boot=boot, address=address)
            async with asyncio.timeout(60):
                while not on_b.messages:
                    a.send(B, ShardId(1), heartbeat(boot))
                    a.flush()
                    await asyncio.sleep(0.01)

    async def test_another_cluster_is_refused(self, world: World) -> None:
        a, _ = await started(world, A)
        b, on_b = await started(world, B, cluster="cluster-2")
        a.set_address(B, b.address)
        with pytest.raises(WrongCluster):
            await a.request(B, "x", b"", 30.0)
        with pytest.raises(WrongCluster):
            await a.request(b.address, "x", b"", 30.0)
        a.send(B, ShardId(1), heartbeat(1))
        a.flush()
        await asyncio.sleep(0.05)
        assert on_b.messages == []
        assert on_b.requests == []

    async def test_another_store_at_the_address_gets_nothing(self, world: World) -> None:
        a, _ = await started(world, A)
        c, on_c = await started(world, C)
        a.set_address(B, c.address)
        with pytest.raises(NotReady):
            await a.request(B, "x", b"", 30.0)
        a.send(B, ShardId(1), heartbeat(1))
        a.flush()
        await asyncio.sleep(0.05)
        assert on_c.messages == []
        assert on_c.requests == []

    async def test_an_address_in_use_is_an_os_error(self, world: World) -> None:
        a, _ = await started(world, A)
        other = world.make(identity(B), address=a.address)
        with pytest.raises(OSError, match=r"cannot listen for stores on .*in use"):
            await other.start(Recorder())
