"""Mirrorer: a job that mirrors a log which goes on, truncates as that one, and promotes the mirror.

Theory of operation. The source is a restorer's (`restorer`), but it is there only up to an LSN that
moves on while the job works, and so does what it truncates. Two workers that know nothing of each
other bring what is there, and truncate the mirror as far as the source is truncated. In some worlds
the source ends and the mirror is promoted with its digest (*planned*), sometimes only that of what
was not compared before, with truncations in between. In the others a worker promotes it at some
moment without one, while the other one goes on bringing blocks (*forced*), so that blocks and
truncations come between the digest and the entry that opens the log. In worlds with a false block,
which are planned ones, the mirror must never open, and has to be refused.

Others append, read what the mirror has, end it with a range that is not its own, and truncate what
it does not have. Once it is open, what it has is compared with the source, and a worker that comes
late brings one more block, which must be refused.
"""

from __future__ import annotations

from logservice_wire.errors import CorruptBlock, LogServiceError, NotReady, Reason

from logservice.ids import Lsn
from logservice.lineage import NO_LINEAGE
from logservice.nodehost.node_host import NodeHost
from logservice.outcome import Applied
from logservice.owner import Author
from logservice.rsm import commands
from logservice.rsm.queries import LogStatus, LogStatusQuery
from logservice.sim.clients.client import READ_TIMEOUT_S
from logservice.sim.clients.restorer import LINEAGE, Restorer, Source

_STAMP = 5_000
"""The next timestamp of a planned promote."""

_NOTHING = bytes(32)
"""In place of the digest that a mirror does not promise."""


class Mirrorer(Restorer):
    """One in some of the worlds with a restore."""

    async def run(self) -> None:
        """See `Restorer`."""
        self._planned = self.chance.random() < 0.5
        await super().run()

    def _draw(self) -> Source:
        source = super()._draw()
        self._grown = source.base
        self._cut = source.base - 1
        return source

    @property
    def reach(self) -> int:
        """The LSN behind what the source has by now."""
        return self._grown

    @property
    def _forced(self) -> bool:
        return self.right and not self._planned

    def _grow(self) -> None:
        """The source goes on, and is truncated."""
        source, chance = self.source, self.chance
        if self.hurried:
            self._grown = source.end
        if self._grown < source.end and chance.random() < 0.5:
            piece = source.at(self._grown)
            self._grown = piece.lsn + piece.count
        if chance.random() < 0.1:
            # A false block has to stay, or the mirror would be right again.
            limit = self._grown if self.right else self._spoiled.lsn
            self._cut = max(self._cut, min(self._cut + chance.randint(1, 9), limit - 1))

    async def _step(self) -> None:
        status = await self._status()
        restoring = status.restoring
        if restoring is None:
            if not status.lineage.number:
                await self._begin()
            elif not self.open:
                await self._compare()
            return
        self._grow()
        next_lsn = int(status.next_lsn)
        if self._forced and next_lsn >= restoring.base_lsn and self.chance.random() < 0.05:
            await self._finish()
        elif restoring.base_lsn <= self._cut < next_lsn and self.chance.random() < 0.5:
            await self._truncate(self._cut)
            self.counts["mirrors truncated"] += 1
        elif next_lsn < self.reach:
            await self._bring(next_lsn)
        elif next_lsn == self.source.end:
            await self._finish()
        else:
            await self.pause(0.2)

    async def _begin(self) -> None:
        base = Lsn(self.source.base)
        await self._asks(
            lambda by: commands.BeginRestore(
                by, 1, LINEAGE, NO_LINEAGE, base, Lsn(0), 7, 1, _NOTHING
            )
        )

    async def _truncate(self, lsn: int) -> None:
        await self._asks(lambda by: commands.TruncateMirror(by, LINEAGE, Lsn(lsn)))

    async def _finish(self) -> None:
        """As the leader's store does: digest what the mirror has, compare, state it."""
        before = self.chance.random()

        async def work(host: NodeHost) -> Applied:
            base, end = await self._range(host)
            from_lsn = base
            if before < 0.5:
                # A part is compared, and the rest when time has gone by.
                from_lsn = Lsn(base + int((end - base) * 2 * before))
                await self._check(host, base, from_lsn)
                await self.pause(0.3)
                base, end = await self._range(host)
                from_lsn = max(base, from_lsn)
            digest = await self._check(host, from_lsn, end)
            by = Author(self.identity, host.identity.store_id)
            stamp = 0 if self._forced else _STAMP
            command = commands.EndRestore(by, LINEAGE, digest, base, end, stamp, from_lsn)
            return await host.propose(self.shard, commands.encode(command), READ_TIMEOUT_S)

        await self._try_to_end(work)

    async def _range(self, host: NodeHost) -> tuple[Lsn, Lsn]:
        """What the mirror has."""
        status = await host.lookup(self.shard, LogStatusQuery(), READ_TIMEOUT_S)
        assert isinstance(status, LogStatus)
        if status.restoring is None:
            raise NotReady("it is open")
        return status.restoring.base_lsn, status.next_lsn

    async def _check(self, host: NodeHost, from_lsn: Lsn, end: Lsn) -> bytes:
        """The digest of what the mirror has there. Raises CorruptBlock for one that is not the
        source's.
        """
        digest = await self.digest_here(host, from_lsn, end) if from_lsn < end else _NOTHING
        if not self._forced and digest != self._digest_of(from_lsn, end):
            raise CorruptBlock("the mirror's digest is not the source's")
        return digest

    def _digest_of(self, base: int, end: int) -> bytes:
        return self.source.digest_of(base, end) if base < end else _NOTHING

    async def _compare(self) -> None:
        """The log is open: it is the source as far as it says, and takes nothing more of it."""
        status = await self._status()
        source, fork = self.source, int(status.lineage.fork_lsn)
        await self.compare_range(int(status.first_lsn), fork + 1)
        ended = fork + 1 == source.end if self._planned else fork < self._grown
        stamp = status.next_timestamp >= (2**63 - 1 if self._forced else _STAMP)
        if not self.right:
            self.wrong("a mirror opened with what its source does not have")
        if not (ended and stamp and status.next_lsn == fork + 1):
            self.wrong(f"promoted as {status}, of {self._grown} LSNs")
        if status.writer_epoch >> 32 != 1 or not source.base - 1 <= status.truncated_lsn:
            self.wrong(f"it is open as {status}")
        if status.truncated_lsn > self._cut:
            self.wrong(f"truncated to {status.truncated_lsn}, and the source to {self._cut}")
        await self._come_late(fork + 1)
        self.counts["mirrors promoted"] += 1
        self.open = True

    async def _come_late(self, lsn: int) -> None:
        """A worker that has not heard of the promote."""
        piece = self.source.pieces[-1] if lsn >= self.source.end else self.source.at(lsn)
        request = self._brings(piece, at=lsn)
        for _ in range(5):
            try:
                await self.ask(
                    lambda host: host.submit_append(
                        self.shard, request, READ_TIMEOUT_S, local_only=True
                    ),
                    READ_TIMEOUT_S,
                )
                self.wrong(f"a block of the mirror was taken at LSN {lsn}, behind the promote")
            except LogServiceError as error:
                self.failed(error)
                if error.reason is not Reason.NOT_LEADER:
                    return

    # --- everybody else ---------------------------------------------------------------------------

    async def _read(self) -> None:
        """What the mirror has is read before it is verified; in a false world that may be false."""
        status = await self._status()
        if self.right and status.restoring is not None:
            await self.compare_range(int(status.first_lsn), int(status.next_lsn))
            self.counts["mirrors read"] += 1

    async def _end_early(self) -> None:
        """Another range than what the mirror has; or what is beyond it is to go."""
        status = await self._status()
        if status.restoring is None:
            return
        base, end = status.restoring.base_lsn, Lsn(status.next_lsn - 1)
        if self.chance.random() < 0.5:
            await self._truncate(self.source.end + self.chance.randint(0, 20))
        elif base <= end:
            await self._asks(lambda by: commands.EndRestore(by, LINEAGE, _NOTHING, base, end, 1))
