"""Restorer: a job that restores a log, is killed and begun again, and sometimes brings a false one.

Theory of operation. One more log than the others has is nobody's. This job draws what a source had
(blocks, gaps, a base) and restores it, over the wires and stores of this world, by two workers at a
time that know nothing of each other: both go on where the log is, so most blocks are sent twice.
Each of them dies now and then. In some worlds one block that is sent has a changed byte; then the
log must never open.

While it is restored the job also plays everybody else: a writer and a reader that must be refused,
and a stranger that ends the restore too early with the promised digest. Only a leader's store that
has looked proposes that of a whole log, so no end of the stranger may come behind the last piece.
Workers bring that piece only once an entry is applied that was proposed behind the newest such end,
and from then on the stranger proposes none (`_let_none_end_early`). An end of the stranger that is
accepted is wrong in every world.

Once the log is open it is read and compared with the source, and the next append must get the next
LSN. What it sees that must not be is in `broken`; `checkers.restores` looks at every entry of every
replica. When the world is over a restore that could end has ended, and the end of a false one was
refused (`unfinished`): a world that is over before that has tried nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from logservice_wire.block import Block, encode_block
from logservice_wire.digest import Digester
from logservice_wire.errors import LogServiceError, NotReady, Reason, ShardRestoring

from logservice.ids import NO_SESSION, Lsn, StoreId
from logservice.lineage import NO_LINEAGE
from logservice.nodehost.node_host import NodeHost
from logservice.outcome import Applied
from logservice.owner import NO_NONCE, Author
from logservice.rsm import commands
from logservice.rsm.append_request import AppendRequest
from logservice.rsm.queries import LogStatus, LogStatusQuery
from logservice.sim.clients.client import READ_TIMEOUT_S, Client

RESTORER: Final = 900
"""Its number among the clients."""

LINEAGE: Final = b"the restored one"
_WORKERS: Final = 2
_RIGHT_SHARE: Final = 0.75
"""Of the worlds with a restore those in which what is brought is what was promised."""
_READ_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Piece:
    """LSNs of the source: a block, or a gap for a reason."""

    lsn: int
    count: int
    block: bytes
    gap: int
    time_us: int


@dataclass(slots=True)
class Source:
    """What was archived."""

    base: int
    end: int
    pieces: list[Piece] = field(default_factory=list)
    digest: bytes = b""

    def at(self, lsn: int) -> Piece:
        """What comes at `lsn`; below the base a gap up to it."""
        if lsn < self.base:
            return Piece(lsn, self.base - lsn, b"", 1, self.pieces[0].time_us)
        return next(one for one in self.pieces if one.lsn == lsn)

    def digest_of(self, base: int, end: int) -> bytes:
        """Of a range of LSNs."""
        digester = Digester(base, end)
        for one in self.pieces:
            if one.lsn + one.count <= base or digester.done:
                continue
            if one.gap:
                digester.add_gap(one.lsn, one.count, one.gap)
            else:
                digester.add_block(one.lsn, Block.parse(one.block))
        return digester.digest()


class Restorer(Client):
    """One in some worlds of cluster version 2, for the log that nobody else uses."""

    broken: str = ""
    """The first thing that must not be; `wrong` keeps it."""
    open = False
    _early_ends = True
    """A stranger may still end it early."""
    _whole = False
    """All of it may be brought."""
    hurried = False
    """The world waits for its end: the source has all of it, and no worker dies any more."""

    async def run(self) -> None:
        """Until the log is open and compared, or told to stop."""
        self.source = self._draw()
        self.right = self.chance.random() < _RIGHT_SHARE
        self._spoiled = self.chance.choice([one for one in self.source.pieces if one.block])
        workers = [asyncio.ensure_future(self._work()) for _ in range(_WORKERS)]
        strangers = asyncio.ensure_future(self._strange())
        try:
            while True:
                await asyncio.sleep(0.2)
                if self.stopping or self.open:
                    break
        finally:
            for task in (*workers, strangers):
                task.cancel()

    @property
    def unfinished(self) -> bool:
        """Whether it should have ended by now, or been refused, and was not."""
        return not (self.open if self.right else self.counts["restores refused"])

    def wrong(self, what: str) -> None:
        """Something was seen that must not be."""
        self.broken = self.broken or what

    # --- the source -------------------------------------------------------------------------------

    def _draw(self) -> Source:
        chance = self.chance
        lsn = base = chance.choice((1, 8, 5000))
        timed = chance.random() < 0.5
        pieces: list[Piece] = []
        for number in range(chance.randint(20, 60)):
            count = chance.randint(1, 6)
            gap = chance.choice((0, 0, 0, 1, 2, 3)) if number else 0
            records = [b"%d/%d" % (lsn, at) for at in range(count)]
            block = b"" if gap else encode_block(records, lsn)
            # Several pieces may have been in one entry of the source.
            pieces.append(Piece(lsn, count, block, gap, (100 + number // 3) if timed else 0))
            lsn += count
        source = Source(base, lsn, pieces)
        source.digest = source.digest_of(base, lsn)
        return source

    # --- restoring --------------------------------------------------------------------------------

    async def _work(self) -> None:
        """One life after the other."""
        while not self.stopping:
            left = self.chance.randint(1, 40)
            try:
                while left > 0 or self.hurried:
                    left -= 1
                    await self._step()
                self.counts["restorers killed"] += 1
            except LogServiceError as error:
                self.failed(error)
            await self.pause(0.5)

    async def _step(self) -> None:
        """Look where the log is, and bring what comes next."""
        status = await self._status()
        if status.restoring is None:
            if not status.lineage.number:
                await self._begin()
            elif not self.open:
                await self._compare()
            return
        if status.next_lsn < self.reach:
            await self._bring(int(status.next_lsn))
        elif not self._whole:
            await self._let_none_end_early()
        else:
            await self._finish()

    async def _begin(self) -> None:
        source = self.source
        await self._asks(
            lambda by: commands.BeginRestore(
                by,
                1,
                LINEAGE,
                NO_LINEAGE,
                Lsn(source.base),
                Lsn(source.end),
                7,
                1,
                source.digest,
            )
        )

    @property
    def reach(self) -> int:
        """The LSN behind what there is to bring."""
        return self.source.end if self._whole else self.source.pieces[-1].lsn

    async def _let_none_end_early(self) -> None:
        """What a stranger has proposed is in the log before this repetition, or in no log."""
        self._early_ends = False
        await self._begin()
        self._whole = True

    async def _bring(self, lsn: int) -> None:
        """Up to five pieces in a row."""
        requests = []
        for _ in range(self.chance.randint(1, 5)):
            if lsn >= self.reach:
                break
            piece = self.source.at(lsn)
            requests.append(self._brings(piece))
            lsn += piece.count

        async def work(host: NodeHost) -> None:
            waiting = [
                host.submit_append(self.shard, one, READ_TIMEOUT_S, local_only=True)
                for one in requests
            ]
            for outcome in await asyncio.gather(*waiting, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    raise outcome

        await self.ask(work, READ_TIMEOUT_S)
        self.counts["restored pieces"] += len(requests)

    def _brings(self, piece: Piece, at: int = 0) -> AppendRequest:
        """`at`: for who brings it as if it were at that LSN."""
        block = piece.block
        if piece is self._spoiled and not self.right:
            block = encode_block([b"spoiled", *[b""] * (piece.count - 1)], piece.lsn)
        claim = Author(self.identity, StoreId(self.name)).claim(LINEAGE)
        return AppendRequest(
            NO_SESSION,
            piece.gap,
            0,
            Lsn(at or piece.lsn),
            piece.count,
            block,
            claim,
            restored=True,
            append_time_us=piece.time_us,
        )

    async def _finish(self) -> None:
        """As the leader's store does: digest what is in the log, and state that. Sometimes a store
        states the digest of a part of a false one, which is right of that part.
        """
        source = self.source
        part = not self.right and self.chance.random() < 0.3
        from_lsn = Lsn(source.pieces[-1].lsn if part else 0)

        async def work(host: NodeHost) -> Applied:
            base, end = Lsn(source.base), Lsn(source.end)
            digest = await self.digest_here(host, from_lsn or base, end)
            by = Author(self.identity, host.identity.store_id)
            command = commands.EndRestore(by, LINEAGE, digest, base, end, digest_lsn=from_lsn)
            return await host.propose(self.shard, commands.encode(command), READ_TIMEOUT_S)

        await self._try_to_end(work)

    async def _try_to_end(self, work: Callable[[NodeHost], Awaitable[Applied]]) -> None:
        try:
            await self.ask(work, READ_TIMEOUT_S)
        except LogServiceError as error:
            if error.reason is Reason.CORRUPT_BLOCK:
                self.counts["restores refused"] += 1
                if self.right:
                    self.wrong(f"what was brought is refused: {error}")
                await self.pause(5.0)
            raise

    async def digest_here(self, host: NodeHost, base: Lsn, end: Lsn) -> bytes:
        """Of what the store's own log has."""
        digester = Digester(base, end)
        while not digester.done:
            found = await host.read_log(
                self.shard, Lsn(digester.next_lsn), _READ_BYTES, restoring=True
            )
            for run in found.runs:
                if digester.done:
                    break
                if run.gap is not None:
                    reason = {"FENCED": 1, "WRONG_EXPECTED_LSN": 2, "SEQUENCE_GAP": 3}
                    digester.add_gap(run.first_lsn, run.record_count, reason[run.gap.value])
                else:
                    digester.add_block(run.first_lsn, Block.parse(run.block))
            if not found.runs:
                raise NotReady("this replica does not have all of it yet")
        return digester.digest()

    async def _compare(self) -> None:
        """The log is open: it is the source, and goes on."""
        source = self.source
        await self.compare_range(source.base, source.end)
        if not self.right:
            self.wrong("a log opened with what was not promised")
        status = await self._status()
        if status.first_lsn != source.base or status.writer_epoch >> 32 != 1:
            self.wrong(f"it is open as {status}")
        self.counts["logs restored"] += 1
        self.open = True

    async def compare_range(self, lsn: int, end: int) -> None:
        """What is read is what the source had."""
        source = self.source
        while lsn < end:
            position = Lsn(lsn)

            async def work(host: NodeHost, position: Lsn = position) -> object:
                await host.read_index(self.shard, READ_TIMEOUT_S)
                return await host.read_log(self.shard, position, _READ_BYTES)

            found: object = await self.ask(work, READ_TIMEOUT_S)
            for run in found.runs:  # type: ignore[attr-defined]
                if run.first_lsn >= end:
                    break
                piece = source.at(run.first_lsn)
                if run.record_count != piece.count or bytes(run.block) != piece.block:
                    self.wrong(f"LSN {run.first_lsn} is {run}, and was {piece}")
                if piece.time_us and run.append_time_us != piece.time_us:
                    self.wrong(f"LSN {run.first_lsn} has time {run.append_time_us}: {piece}")
            lsn = int(found.next_lsn)  # type: ignore[attr-defined]

    # --- everybody else ---------------------------------------------------------------------------

    async def _strange(self) -> None:
        """Who appends, reads, or ends the restore by himself must be refused."""
        while not self.stopping:
            await self.pause()
            try:
                status = await self._status()
                if status.restoring is None:
                    continue
                await self.chance.choice((self._append, self._read, self._end_early))()
            except ShardRestoring:
                self.counts["refused while restoring"] += 1
            except LogServiceError as error:
                self.failed(error)

    async def _append(self) -> None:
        request = self.request(self.block("stranger", 1), 1, nonce=NO_NONCE)
        await self.ask(
            lambda host: host.append(self.shard, request, READ_TIMEOUT_S), READ_TIMEOUT_S
        )
        self.wrong("a stranger's append was acknowledged")

    async def _read(self) -> None:
        found = await self.ask(
            lambda host: host.read_log(self.shard, Lsn(1), _READ_BYTES), READ_TIMEOUT_S
        )
        # A replica that is behind may not know yet that the log is restored; it has nothing then.
        if any(run.first_lsn + run.record_count > self.source.base for run in found.runs) and not (
            self.right
        ):
            self.wrong("a stranger read what is not verified")

    async def _end_early(self) -> None:
        """With the promised digest, as somebody who does not look, while LSNs are missing."""
        source = self.source
        base, end = Lsn(source.base), Lsn(source.end)

        def ends(by: Author) -> commands.Command:
            if not self._early_ends:  # it is asked where it is proposed, in the same turn
                raise NotReady("an end would not be early")
            return commands.EndRestore(by, LINEAGE, source.digest, base, end)

        await self._asks(ends)
        self.wrong("an end was accepted that came early")

    async def _status(self) -> LogStatus:
        async def work(host: NodeHost) -> object:
            if host.cluster_version.value < 2:
                raise NotReady("the cluster is too old for this")
            return await host.lookup(self.shard, LogStatusQuery(), READ_TIMEOUT_S)

        status = await self.ask(work, READ_TIMEOUT_S)
        assert isinstance(status, LogStatus)
        return status

    async def _asks(self, build: Callable[[Author], commands.Command]) -> Applied:
        return await self.command(build)
