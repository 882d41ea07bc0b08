"""Lanes of one stream with a scripted NodeHost: INV-LANES-1, INV-LANES-2, INV-LANES-3."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

import pytest
from grpc.aio import EOF
from logservice_wire.block import encode_block
from logservice_wire.errors import (
    Busy,
    CorruptBlock,
    DeadlineExceeded,
    Fenced,
    InvalidArgument,
    LogServiceError,
    NotReady,
    PermissionDenied,
    Reason,
    ShardNotFound,
    TooLarge,
    Unauthenticated,
    UnknownOutcome,
)
from logservice_wire.status import from_status_details
from logservice_wire.v1 import log_pb2

from logservice import bounds
from logservice.ids import ShardId
from logservice.invariants import InvariantViolation
from logservice.lineage import LINEAGE_BYTES
from logservice.outcome import Applied
from logservice.owner import NONCE_BYTES
from logservice.rsm.append_request import AppendRequest
from logservice.server.services.append_lane import AppendLane
from logservice.server.services.append_shards import AppendShards
from tests.owners import CLAIM

BLOCK = encode_block([b"a", b"bc"], 1)
Message = log_pb2.AppendShardsRequest


class FakeLane:
    """What the guard says of a lane; the test changes it."""

    def __init__(self, shard: int) -> None:
        self.shard = shard
        self.in_force = True
        self.asked = 0
        self.refuses: LogServiceError | None = None
        self.may = asyncio.Event()
        self.may.set()
        self.acks = 0
        self.outcomes: list[str] = []

    async def ask(self) -> None:
        self.asked += 1
        await self.may.wait()
        if self.refuses is not None:
            raise self.refuses
        self.in_force = True

    def answered(self, answer: log_pb2.AppendShardsResponse.Lane) -> None:
        self.acks += len(answer.acks)

    def ended(self, reason: str = "OK") -> None:
        self.outcomes.append(reason)


class FakeCall:
    """The context of one call, and the NodeHost behind it."""

    def __init__(self, inflight_max: int = bounds.SESSION_WINDOW) -> None:
        self._incoming: asyncio.Queue[object] = asyncio.Queue()
        self.sent: list[log_pb2.AppendShardsResponse] = []
        self.reads = asyncio.Event()
        self.reads.set()
        self.guarded: dict[int, FakeLane] = {}
        self.places = 10**9
        self.proposed: list[tuple[int, AppendRequest]] = []
        self.futures: dict[tuple[int, int], asyncio.Future[Applied]] = {}
        self.missing: set[int] = set()
        self.opened: list[Message.Open] = []
        self.stream = AppendShards(self, self.opens, inflight_max)  # type: ignore[arg-type]
        self.task = asyncio.create_task(self.stream.run())

    def send(self, item: Message) -> None:
        self._incoming.put_nowait(item)

    def close(self) -> None:
        self._incoming.put_nowait(EOF)

    def fail(self, error: BaseException) -> None:
        """What the guard raises instead of a message."""
        self._incoming.put_nowait(error)

    async def read(self) -> object:
        got = await self._incoming.get()
        if isinstance(got, BaseException):
            raise got
        return got

    async def write(self, response: log_pb2.AppendShardsResponse) -> None:
        self.sent.append(response)
        await self.reads.wait()

    def lane(self, shard: ShardId) -> FakeLane:
        if len(self.guarded) >= self.places:
            raise Busy("too many streams of one identity", retry_after_ms=500)
        return self.guarded.setdefault(shard, FakeLane(shard))

    async def opens(self, opened: Message.Open) -> AppendLane:
        self.opened.append(opened)
        if opened.shard_id in self.missing:
            raise ShardNotFound(shard=opened.shard_id)
        shard = opened.shard_id

        def submit(request: AppendRequest) -> asyncio.Future[Applied]:
            future: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()
            self.proposed.append((shard, request))
            self.futures[shard, request.sequence] = future
            return future

        return AppendLane(
            opened.session_id,
            opened.writer_epoch,
            CLAIM,
            submit,
            lambda acked_lsn: log_pb2.LogPosition(applied_lsn=acked_lsn),
        )

    def settle(self, shard: int, *sequences: int) -> None:
        for sequence in sequences:
            self.futures[shard, sequence].set_result(Applied(lsn=2 * sequence - 1, count=2))

    def acked(self) -> list[tuple[int, int]]:
        return [
            (lane.lane, ack.sequence)
            for response in self.sent
            for lane in response.lanes
            for ack in lane.acks
        ]

    def ended(self) -> dict[int, LogServiceError | None]:
        """How lanes ended, by number."""
        return {
            lane.lane: from_status_details(lane.status) if lane.status else None
            for response in self.sent
            for lane in response.lanes
            if lane.ended
        }


def opening(*lanes: int) -> list[Message.Open]:
    """Lane n is of shard n."""
    return [
        Message.Open(lane=lane, shard_id=lane, session_id=lane, session_nonce=bytes(16))
        for lane in lanes
    ]


def blocks(lane: int, *sequences: int, block: bytes = BLOCK) -> list[Message.Block]:
    return [Message.Block(lane=lane, sequence=number, block=block) for number in sequences]


async def turn() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


async def done(call: FakeCall) -> None:
    async with asyncio.timeout(60):
        await call.task


async def test_answers_of_one_turn_are_one_message() -> None:
    call = FakeCall()
    call.send(Message(opens=opening(1, 2, 3), blocks=[*blocks(1, 1, 2), *blocks(2, 1)]))
    call.send(Message(blocks=[*blocks(3, 1), *blocks(2, 2)]))
    await turn()
    proposed = [(shard, one.sequence) for shard, one in call.proposed]
    assert sorted(proposed) == [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1)]
    assert [shard for shard, _ in proposed if shard < 3] == [1, 1, 2, 2]
    assert call.sent == []
    call.settle(1, 1, 2)
    call.settle(2, 2)
    call.settle(3, 1)
    await turn()
    assert len(call.sent) == 1
    # The first block of lane 2 is not settled, so its second one waits.
    assert sorted(call.acked()) == [(1, 1), (1, 2), (3, 1)]
    assert {lane.lane: lane.position.applied_lsn for lane in call.sent[0].lanes} == {1: 4, 3: 2}
    call.settle(2, 1)
    call.close()
    await done(call)
    assert call.acked()[-2:] == [(2, 1), (2, 2)]
    assert call.ended() == {1: None, 2: None, 3: None}
    assert [one.outcomes for one in call.guarded.values()] == [["OK"]] * 3
    assert [one.acks for one in call.guarded.values()] == [2, 2, 1]


async def test_inv_lanes_1_a_lane_that_fails_changes_nothing_for_the_others() -> None:
    """A refused block, a corrupt one, a shard that is not here, an identity without a place."""
    call = FakeCall()
    call.missing.add(3)
    call.places = 4
    call.send(Message(opens=opening(1, 2, 3, 4, 5), blocks=blocks(1, 1, 2)))
    call.send(Message(blocks=[*blocks(2, 1), *blocks(2, 2, block=b"no block"), *blocks(2, 3)]))
    call.send(Message(blocks=[*blocks(3, 1), *blocks(4, 1), *blocks(5, 1)]))
    await turn()
    assert call.ended()[3].reason is Reason.SHARD_NOT_FOUND  # type: ignore[union-attr]
    assert call.ended()[5].reason is Reason.BUSY  # type: ignore[union-attr]
    call.futures[1, 1].set_exception(Fenced("", epoch=4, holder="b"))
    call.settle(1, 2)
    call.settle(2, 1)
    call.settle(4, 1)
    await turn()
    fenced, corrupt = call.ended()[1], call.ended()[2]
    assert isinstance(fenced, Fenced)
    assert fenced.metadata == {"epoch": "4", "holder": "b", "sequence": "1"}
    assert isinstance(corrupt, CorruptBlock)
    assert corrupt.number("sequence") == 2
    assert sorted(call.acked()) == [(2, 1), (4, 1)]
    # What comes for a lane that has ended is dropped; a new lane begins anew.
    call.places += 1
    call.send(Message(opens=opening(6), blocks=[*blocks(1, 2), *blocks(6, 1), *blocks(4, 2)]))
    await turn()
    assert [shard for shard, _ in call.proposed].count(1) == 2
    call.settle(6, 1)
    call.settle(4, 2)
    call.close()
    await done(call)
    assert sorted(call.acked()) == [(2, 1), (4, 1), (4, 2), (6, 1)]
    assert {n: one.outcomes for n, one in call.guarded.items()} == {
        1: ["FENCED"],
        2: ["CORRUPT_BLOCK"],
        3: ["SHARD_NOT_FOUND"],
        4: ["OK"],
        6: ["OK"],
    }


async def test_inv_lanes_1_a_shard_that_stands_still_holds_up_nobody() -> None:
    call = FakeCall()
    call.send(Message(opens=opening(1, 2), blocks=blocks(1, *range(1, bounds.SESSION_WINDOW + 1))))
    await turn()
    for sequence in range(1, 200):
        call.send(Message(blocks=blocks(2, sequence)))
        await turn()
        call.settle(2, sequence)
        await turn()
    assert call.acked() == [(2, sequence) for sequence in range(1, 200)]
    call.task.cancel()


@pytest.mark.parametrize("admitted_late", [False, True])
async def test_inv_lanes_3_unanswered_blocks_of_a_lane_are_bounded(admitted_late: bool) -> None:
    """Reaches SESSION_WINDOW blocks of a lane; one more ends it, behind what is answered."""
    call = FakeCall()
    call.send(Message(opens=opening(1, 2)))
    await turn()
    if admitted_late:
        call.guarded[1].in_force = False
        call.guarded[1].may.clear()
    window = bounds.SESSION_WINDOW
    call.send(Message(blocks=[*blocks(1, *range(1, window + 1)), *blocks(2, 1)]))
    await turn()
    assert not call.ended()
    call.send(Message(blocks=blocks(1, window + 1, window + 2)))
    await turn()
    call.settle(2, 1)
    if not admitted_late:
        assert len(call.proposed) == window + 1
        call.settle(1, *range(1, window + 1))
    await turn()
    error = call.ended()[1]
    assert isinstance(error, Busy)
    assert error.number("sequence") == (1 if admitted_late else window + 1)
    assert len([lane for lane, _ in call.acked() if lane == 1]) == (0 if admitted_late else window)
    assert (2, 1) in call.acked()
    call.close()
    await done(call)


async def test_inv_lanes_3_bytes_that_wait_are_bounded() -> None:
    """Reaches STREAM_LANES_WAITING_BYTES_MAX with blocks of lanes that nobody has let in yet."""
    call = FakeCall()
    call.send(Message(opens=opening(1, 2, 3)))
    await turn()
    for lane in (1, 2):
        call.guarded[lane].in_force = False
        call.guarded[lane].may.clear()
    large = bytes(bounds.BLOCK_BYTES_MAX)
    left = bounds.STREAM_LANES_WAITING_BYTES_MAX - len(large)
    call.send(Message(blocks=blocks(1, 1, block=large)))
    call.send(Message(blocks=blocks(2, 1, block=bytes(left))))
    await turn()
    assert not call.ended()
    call.send(Message(blocks=[*blocks(2, 2, block=b"x"), *blocks(3, 1)]))
    await turn()
    assert {lane: error.reason for lane, error in call.ended().items() if error} == {2: Reason.BUSY}
    assert [shard for shard, _ in call.proposed] == [3]
    # What the lane that ended had waiting is free again.
    call.send(Message(opens=opening(4)))
    await turn()
    call.guarded[4].in_force = False
    call.guarded[4].may.clear()
    call.send(Message(blocks=blocks(4, 1, block=bytes(left))))
    await turn()
    assert set(call.ended()) == {2}
    call.task.cancel()


async def test_inv_lanes_3_what_waits_keeps_nothing_else_of_its_message() -> None:
    """A part of a message holds all of the memory that it was parsed into: the blocks of others,
    fields that nobody knows, texts that are too long. A lane keeps the few values that it needs.
    """
    call = FakeCall()
    call.send(Message(opens=opening(1), closes=[Message.Close(lane=1)]))
    await turn()
    long = b"n" * 1000
    opened = Message.Open(lane=2, shard_id=2, session_id=2, session_nonce=long, lineage=long)
    call.guarded[2] = FakeLane(2)
    call.guarded[2].may.clear()
    junk = blocks(1, 1, block=bytes(1 << 20))
    message = Message(opens=[opened], blocks=[*junk, *blocks(2, 1)])
    message.blocks[1].traceparent = "t" * 1000
    parts = [message, message.opens[0], message.blocks[1]]
    held = [sys.getrefcount(one) for one in parts]
    call.send(message)
    await turn()
    [lane] = call.stream._lanes.values()
    assert [(one.sequence, bytes(one.block)) for one in lane.waiting] == [(1, BLOCK)]
    assert [sys.getrefcount(one) for one in parts] == held
    assert lane.waiting[0].traceparent == ""
    call.guarded[2].may.set()
    await turn()
    [told] = call.opened[1:]
    assert len(told.session_nonce) == NONCE_BYTES + 1, "as wrong as it was, and short"
    assert len(told.lineage) == LINEAGE_BYTES + 1
    call.settle(2, 1)
    await turn()
    assert call.acked() == [(2, 1)]
    call.task.cancel()


async def test_a_stream_that_waits_keeps_no_message() -> None:
    call = FakeCall()
    message = Message(opens=opening(1), blocks=blocks(1, 1))
    parts = [message, message.opens[0]]
    held = [sys.getrefcount(one) for one in parts]
    call.send(message)
    await turn()
    assert [sys.getrefcount(one) for one in parts] == held
    assert len(call.proposed) == 1
    call.task.cancel()


async def test_inv_lanes_3_lanes_are_bounded() -> None:
    """Reaches STREAM_LANES_MAX; one more ends the stream, behind what was proposed."""
    call = FakeCall()
    most = bounds.STREAM_LANES_MAX
    for lane in range(1, most + 1):
        call.send(Message(opens=opening(lane)))
    call.send(Message(blocks=blocks(most, 1)))
    await turn()
    async with asyncio.timeout(60):
        while not call.proposed:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0)
    # A lane that is closed makes room for another one.
    call.send(Message(closes=[Message.Close(lane=1)]))
    await turn()
    assert call.ended() == {1: None}
    call.send(Message(opens=opening(most + 1)))
    await turn()
    assert not call.task.done()
    call.send(Message(opens=opening(most + 2)))
    await turn()
    assert not call.task.done()
    call.settle(most, 1)
    with pytest.raises(TooLarge) as caught:
        await done(call)
    assert (caught.value.metadata["name"], caught.value.number("limit")) == ("lanes", most)
    assert call.acked() == [(most, 1)]


async def test_lanes_that_a_message_opens_are_bounded() -> None:
    """Reaches SHARDS_MESSAGE_OPENS_MAX; a message with one more opens none."""
    most = bounds.SHARDS_MESSAGE_OPENS_MAX
    call = FakeCall()
    call.send(Message(opens=opening(*range(1, most + 1))))
    await turn()
    assert len(call.guarded) == most
    call.send(Message(opens=opening(*range(most + 1, 2 * most + 2))))
    with pytest.raises(TooLarge) as caught:
        await done(call)
    assert caught.value.metadata["name"] == "opens"
    assert len(call.guarded) == most


async def test_inv_lanes_3_a_client_that_reads_nothing_gets_nothing_more() -> None:
    """While gRPC takes no answer, each lane takes a window and then ends; ends are lanes, too."""
    call = FakeCall()
    call.reads.clear()
    call.send(Message(opens=opening(1, 2), blocks=blocks(1, 1)))
    await turn()
    call.settle(1, 1)
    await turn()
    assert len(call.sent) == 1
    window = bounds.SESSION_WINDOW
    for sequence in range(1, 4 * window):
        call.send(Message(blocks=blocks(2, sequence)))
    await turn()
    assert len(call.proposed) == 1 + window
    for lane in range(3, bounds.STREAM_LANES_MAX + 1):
        call.missing.add(lane)
        call.send(Message(opens=opening(lane)))
    await turn()
    call.send(Message(opens=opening(bounds.STREAM_LANES_MAX + 1)))
    for _ in range(100):
        await turn()
    assert len(call.sent) == 1
    call.settle(2, *range(1, window + 1))
    call.reads.set()
    with pytest.raises(TooLarge):
        await done(call)


async def test_inv_lanes_2_nothing_is_proposed_before_the_gate_has_decided() -> None:
    """It is asked again when its decision is not in force, and what waited keeps its order."""
    call = FakeCall()
    call.send(Message(opens=opening(1, 2), blocks=[*blocks(1, 1), *blocks(2, 1)]))
    await turn()
    assert [one.asked for one in call.guarded.values()] == [1, 1]
    call.guarded[1].in_force = False
    call.guarded[1].may.clear()
    call.send(Message(blocks=[*blocks(1, 2), *blocks(2, 2)]))
    call.send(Message(blocks=[*blocks(1, 3), *blocks(2, 3)]))
    await turn()
    assert [one.sequence for shard, one in call.proposed if shard == 1] == [1]
    assert [one.sequence for shard, one in call.proposed if shard == 2] == [1, 2, 3]
    call.guarded[1].may.set()
    await turn()
    assert [one.sequence for shard, one in call.proposed if shard == 1] == [1, 2, 3]
    assert call.guarded[1].asked == 2
    # And when it says no, what was let in before is answered still.
    call.guarded[1].in_force = False
    call.guarded[1].refuses = PermissionDenied("", role="append", shard=1)
    call.send(Message(blocks=[*blocks(1, 4), *blocks(2, 4)]))
    await turn()
    assert not call.ended()
    call.settle(1, 1, 2, 3)
    await turn()
    assert [sequence for lane, sequence in call.acked() if lane == 1] == [1, 2, 3]
    assert call.ended()[1].reason is Reason.PERMISSION_DENIED  # type: ignore[union-attr]
    assert [one.sequence for shard, one in call.proposed if shard == 2] == [1, 2, 3, 4]
    assert call.guarded[1].outcomes == ["PERMISSION_DENIED"]
    call.task.cancel()


async def test_room_in_a_lane_is_used_in_order() -> None:
    call = FakeCall(inflight_max=2)
    call.send(Message(opens=opening(1), blocks=blocks(1, 1, 2, 3, 4, 5)))
    await turn()
    assert [one.sequence for _, one in call.proposed] == [1, 2]
    call.settle(1, 1)
    await turn()
    assert [one.sequence for _, one in call.proposed] == [1, 2, 3]
    call.send(Message(closes=[Message.Close(lane=1)]))
    await turn()
    call.settle(1, 2, 3)
    await turn()
    call.settle(1, 4, 5)
    await turn()
    assert call.acked() == [(1, sequence) for sequence in range(1, 6)]
    assert call.ended() == {1: None}
    call.close()
    await done(call)


@pytest.mark.parametrize(
    "wrong",
    [
        Message(opens=opening(2)),
        Message(opens=opening(0)),
        Message(blocks=blocks(9, 1)),
        Message(blocks=blocks(0, 1)),
        Message(closes=[Message.Close(lane=9)]),
    ],
    ids=["not above", "lane 0", "not opened", "block of lane 0", "close of none"],
)
async def test_a_message_against_the_rules_ends_the_stream_behind_the_acks(wrong: Message) -> None:
    call = FakeCall()
    call.send(Message(opens=opening(1, 2), blocks=blocks(1, 1)))
    await turn()
    call.send(wrong)
    call.send(Message(blocks=blocks(1, 2)))
    await turn()
    assert not call.task.done()
    call.settle(1, 1)
    with pytest.raises(InvalidArgument):
        await done(call)
    assert call.acked() == [(1, 1)]
    assert call.ended() == {}
    assert [one.sequence for _, one in call.proposed] == [1]
    assert [one.outcomes for one in call.guarded.values()] == [["OK"]] * 2


async def test_blocks_behind_a_close_are_refused() -> None:
    call = FakeCall()
    call.send(Message(opens=opening(1), blocks=blocks(1, 1), closes=[Message.Close(lane=1)]))
    await turn()
    call.send(Message(blocks=blocks(1, 2)))
    await turn()
    call.settle(1, 1)
    await turn()
    assert call.acked() == [(1, 1)]
    assert call.ended()[1].reason is Reason.INVALID_ARGUMENT  # type: ignore[union-attr]
    call.close()
    await done(call)


async def test_a_caller_who_is_not_let_in_any_more_gets_his_acks_first() -> None:
    call = FakeCall()
    call.send(Message(opens=opening(1), blocks=blocks(1, 1)))
    await turn()
    call.fail(Unauthenticated("the certificate has expired"))
    await turn()
    assert not call.task.done()
    call.settle(1, 1)
    with pytest.raises(Unauthenticated):
        await done(call)
    assert call.acked() == [(1, 1)]


async def test_a_call_that_is_cancelled_leaves_nothing() -> None:
    call = FakeCall()
    call.send(Message(opens=opening(1, 2, 3), blocks=[*blocks(1, 1, 2), *blocks(2, 1)]))
    await turn()
    call.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call.task
    ends = [one.outcomes for one in call.guarded.values()]
    assert ends == [["CANCELLED"], ["CANCELLED"], ["OK"]], "nothing of lane 3 is unanswered"
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    call.futures[1, 2].set_exception(UnknownOutcome("the replica stopped"))
    call.futures.clear()
    await turn()
    assert reported == []


@pytest.mark.parametrize(
    "bug", [lambda: RuntimeError("a bug"), lambda: InvariantViolation("INV-X", {})]
)
async def test_a_bug_while_a_lane_begins_ends_the_stream(
    bug: Callable[[], BaseException],
) -> None:
    """No operating error: the handler answers INTERNAL, or ends the process."""
    call = FakeCall()
    raised = bug()

    async def opens(_: Message.Open) -> AppendLane:
        raise raised

    call.stream._opens = opens
    call.send(Message(opens=opening(1)))
    with pytest.raises(type(raised)):
        await done(call)


async def test_an_ack_that_cannot_be_sent_is_no_not_applied() -> None:
    call = FakeCall()

    async def write(_: log_pb2.AppendShardsResponse) -> None:
        raise NotReady("")

    call.write = write  # type: ignore[method-assign]
    call.send(Message(opens=opening(1), blocks=blocks(1, 1)))
    await turn()
    call.settle(1, 1)
    with pytest.raises(UnknownOutcome):
        await done(call)


async def test_a_stream_without_a_lane_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """After STREAM_OPEN_TIMEOUT_S, at its beginning and when its last lane has ended."""
    monkeypatch.setattr(bounds, "STREAM_OPEN_TIMEOUT_S", 0.01)
    empty = FakeCall()
    empty.send(Message())
    with pytest.raises(DeadlineExceeded):
        await done(empty)
    call = FakeCall()
    call.send(Message(opens=opening(1)))
    await asyncio.sleep(0.05)
    assert not call.task.done()
    call.send(Message(closes=[Message.Close(lane=1)]))
    with pytest.raises(DeadlineExceeded):
        await done(call)
    assert call.ended() == {1: None}
