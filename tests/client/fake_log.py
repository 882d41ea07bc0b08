"""FakeLog: one shard in memory, with the rules of the real one that a client depends on."""

from __future__ import annotations

import dataclasses
import secrets

from logservice_wire.block import Block, is_wide, validate_block
from logservice_wire.bounds import SESSION_WINDOW
from logservice_wire.digest import START, Digester
from logservice_wire.errors import (
    BeyondTail,
    Fenced,
    HoldLost,
    HoldRefused,
    LineageChanged,
    LogServiceError,
    Reason,
    SequenceGap,
    SequenceReused,
    SessionExpired,
    ShardClosed,
    StaleEpoch,
    StaleTruncate,
    Truncated,
    WrongExpectedLsn,
)
from logservice_wire.v1 import log_pb2

GAP_REASONS = {
    Reason.FENCED: log_pb2.GAP_REASON_FENCED,
    Reason.WRONG_EXPECTED_LSN: log_pb2.GAP_REASON_WRONG_EXPECTED_LSN,
    Reason.SEQUENCE_GAP: log_pb2.GAP_REASON_SEQUENCE,
    Reason.SESSION_EXPIRED: log_pb2.GAP_REASON_SEQUENCE,
    Reason.SEQUENCE_REUSED: log_pb2.GAP_REASON_SEQUENCE,
}


@dataclasses.dataclass
class FakeSession:
    last: int = 0
    nonce: bytes = b""
    window: dict[int, tuple[int, int, bytes]] = dataclasses.field(default_factory=dict)
    content: bytes = b""
    stamp_us: int = 0


@dataclasses.dataclass
class Applied:
    lsn: int
    count: int
    duplicate: bool = False


class FakeLog:
    """`gaps`: whether a refused block keeps its LSNs, as it does when apply refuses it."""

    def __init__(self, shard: int) -> None:
        self.shard = shard
        self.runs: list[log_pb2.LogBlock] = []
        self.next_lsn = 1
        self.truncated = 0
        self.sessions: dict[int, FakeSession] = {}
        self.sessions_opened = 0
        self.named: dict[str, int] = {}
        self.holder = ""
        self.epoch = 0
        self.fencing = False
        self.holds: dict[str, int] = {}
        self.ttls: dict[str, int] = {}
        self.renewed = 0
        self.next_timestamp = 1
        self.term = 1
        self.gaps = False
        self.closed = False
        self.lineage = log_pb2.Lineage(id=bytes(16))
        self.parent = b""

    def fork(self, lineage: bytes, keep: int) -> None:
        """Continue it by force from its first `keep` LSNs."""
        self.parent = self.lineage.id
        self.lineage = log_pb2.Lineage(number=self.lineage.number + 1, id=lineage, fork_lsn=keep)
        self.runs = [run for run in self.runs if run.first_lsn + run.record_count <= keep + 1]
        self.next_lsn = keep + 1
        self.sessions.clear()
        # The names stay, without a memory.
        self.sessions.update({i: FakeSession(2**64 - 1) for i in self.named.values()})

    def check_lineage(self, named: bytes) -> None:
        if named and named != self.lineage.id:
            raise LineageChanged(
                expected=named.hex(),
                actual=self.lineage.id.hex(),
                number=self.lineage.number,
                fork_lsn=self.lineage.fork_lsn,
            )

    def open_session(self) -> tuple[int, bytes]:
        if self.closed:
            raise ShardClosed(end=self.next_lsn)
        self.sessions_opened += 1
        session = 100 + self.sessions_opened
        nonce = secrets.token_bytes(16)
        self.sessions[session] = FakeSession(nonce=nonce)
        return session, nonce

    def open_named(self, asked: log_pb2.OpenSessionRequest) -> tuple[int, FakeSession]:
        if asked.name not in self.named:
            session, nonce = self.open_session()
            self.named[asked.name] = session
            self.sessions[session] = FakeSession(
                asked.epoch << 32, nonce, {}, asked.content, asked.stamp_us
            )
        session = self.named[asked.name]
        found = self.sessions[session]
        known = found.last >> 32
        if asked.epoch < known:
            raise SessionExpired
        if asked.epoch > known:
            found.last, found.window = asked.epoch << 32, {}
            found.content, found.stamp_us = asked.content, asked.stamp_us
        if asked.content != found.content:
            raise SequenceReused(lsn=min((lsn for lsn, _, _ in found.window.values()), default=0))
        return session, found

    def listed(self) -> list[log_pb2.NamedSession]:
        return [
            log_pb2.NamedSession(
                session_id=one, name=name, owner="me", epoch=self.sessions[one].last >> 32
            )
            for name, one in sorted(self.named.items(), key=lambda item: item[1])
        ]

    def forget(self, session: int) -> None:
        self.named = {name: one for name, one in self.named.items() if one != session}
        self.sessions.pop(session, None)

    def append(
        self,
        block: bytes,
        *,
        session: int = 0,
        nonce: bytes = b"",
        sequence: int = 0,
        epoch: int = 0,
        expected: int = 0,
    ) -> Applied:
        count = validate_block(block)
        found = self.sessions.get(session)
        if found is not None and found.nonce != nonce:
            found = None
        try:
            duplicate = self._check(session, found, sequence, epoch, expected, block)
        except LogServiceError as error:
            if self.gaps:
                self._add(count, b"", GAP_REASONS[error.reason])
            raise
        if duplicate is not None:
            return duplicate
        lsn = self._add(count, block, log_pb2.GAP_REASON_NONE)
        if found is not None:
            found.last = sequence
            found.window[sequence] = (lsn, count, block)
            found.window.pop(sequence - SESSION_WINDOW, None)
        return Applied(lsn, count)

    def _check(
        self,
        session: int,
        found: FakeSession | None,
        sequence: int,
        epoch: int,
        expected: int,
        block: bytes,
    ) -> Applied | None:
        if session:
            if found is None:
                raise SessionExpired(sequence=sequence)
            if sequence in found.window:
                lsn, count, known = found.window[sequence]
                if known != block:
                    raise SequenceReused(lsn=lsn, sequence=sequence)
                return Applied(lsn, count, duplicate=True)
            if sequence <= found.last:
                raise SessionExpired(sequence=sequence)
            if sequence > found.last + 1:
                raise SequenceGap(last=found.last, sequence=sequence)
        if self.closed:
            raise ShardClosed(end=self.next_lsn, sequence=sequence)
        if self.fencing and epoch != self.epoch:
            raise Fenced(epoch=self.epoch, holder=self.holder, sequence=sequence)
        if expected and expected != self.next_lsn:
            raise WrongExpectedLsn(next=self.next_lsn, sequence=sequence)
        return None

    def _add(self, count: int, block: bytes, gap: log_pb2.GapReason) -> int:
        lsn = self.next_lsn
        self.runs.append(
            log_pb2.LogBlock(
                first_lsn=lsn,
                record_count=count,
                block=block,
                gap=gap,
                term=self.term,
                append_time_us=lsn,
            )
        )
        self.next_lsn += count
        return lsn

    def put_gap(self, count: int, reason: int) -> None:
        """Put LSNs without records, for a reason of any number."""
        self._add(count, b"", reason)  # type: ignore[arg-type]

    def read(self, lsn: int, max_bytes: int) -> log_pb2.ReadResponse:
        if lsn <= self.truncated:
            raise Truncated(first_lsn=self.truncated + 1)
        if lsn > self.next_lsn:
            raise BeyondTail(next_lsn=self.next_lsn)
        response = log_pb2.ReadResponse(next_lsn=lsn)
        size = 0
        for run in self.runs[self._position(lsn) :]:
            if size and size + len(run.block) > max_bytes:
                break
            response.blocks.append(run)
            response.next_lsn = run.first_lsn + run.record_count
            size += len(run.block)
        return response

    def digest(self, request: log_pb2.DigestRequest, runs_max: int) -> log_pb2.DigestResponse:
        """As much of a digest as `runs_max` runs are; on to the end of a piece."""
        if request.from_lsn <= self.truncated:
            raise Truncated(first_lsn=self.truncated + 1)
        if request.to_lsn > self.next_lsn:
            raise BeyondTail(next_lsn=self.next_lsn)
        begun = request.at_lsn or request.from_lsn
        one = Digester(request.from_lsn, request.to_lsn, at_lsn=begun, chain=request.chain or START)
        for number, run in enumerate(self.runs[self._position(begun) :]):
            if one.done or (number >= runs_max and one.chain_lsn > begun):
                break
            if run.gap:
                one.add_gap(run.first_lsn, run.record_count, run.gap)
            else:
                one.add_block(run.first_lsn, Block.parse(run.block))
        return log_pb2.DigestResponse(
            digest=one.digest() if one.done else b"",
            at_lsn=one.chain_lsn,
            chain=one.chain,
            records=one.records,
            gap_lsns=one.gap_lsns,
            value_bytes=one.value_bytes,
        )

    def _position(self, lsn: int) -> int:
        low, high = 0, len(self.runs)
        while low < high:
            middle = (low + high) // 2
            run = self.runs[middle]
            if run.first_lsn + run.record_count <= lsn:
                low = middle + 1
            else:
                high = middle
        return low

    def lsn_at_time(self, append_time_us: int) -> int:
        """Blocks appended by this fake have their LSN for a time."""
        found = (run.first_lsn for run in self.runs if run.append_time_us >= append_time_us)
        return next(found, self.next_lsn)

    def truncate(self, lsn: int, epoch: int) -> int:
        if self.fencing and epoch != self.epoch:
            raise Fenced(epoch=self.epoch, holder=self.holder)
        if lsn <= self.truncated:
            raise StaleTruncate(current=self.truncated)
        if lsn >= self.next_lsn:
            raise BeyondTail(next_lsn=self.next_lsn)
        self.truncated = min([lsn, *(hold - 1 for hold in self.holds.values())])
        return self.truncated

    def acquire(self, holder: str, expected: int, takeover: bool) -> int:
        if not takeover and expected != self.epoch:
            raise StaleEpoch(epoch=self.epoch, holder=self.holder)
        self.epoch += 1
        self.holder, self.fencing = holder, True
        return self.epoch

    def release(self, epoch: int) -> None:
        if epoch != self.epoch:
            raise StaleEpoch(epoch=self.epoch, holder=self.holder)
        self.holder = ""
        self.epoch += 1

    def set_hold(self, name: str, lsn: int, ttl_s: int) -> None:
        if lsn <= self.truncated:
            raise HoldRefused(first_lsn=self.truncated + 1)
        self.holds[name], self.ttls[name] = lsn, ttl_s

    def renew_hold(self, name: str) -> int:
        if name not in self.holds:
            raise HoldLost(name=name, first_lsn=self.truncated + 1)
        self.renewed += 1
        return self.holds[name]

    def allocate_timestamps(self, count: int) -> int:
        first = self.next_timestamp
        self.next_timestamp += count
        return first


def leave_out_values(response: log_pb2.ReadResponse) -> None:
    """As a store does that was asked for no values: it opens no wide block."""
    for run in response.blocks:
        if run.gap == log_pb2.GAP_REASON_NONE and not is_wide(run.block):
            run.timestamp_us = Block.parse(run.block).timestamp_us
            run.block_bytes = len(run.block)
            run.block = b""
