"""Neighbour: another identity with every right to the same log, and a grudge.

The neighbour knows what a client can find out or steal: session ids with their nonces, the newest
writer epoch, the names of holds. What it tries must never take effect (INV-RSM-OWNER,
INV-RSM-WRITER, INV-RSM-HOLD-OWNER; G5 and G9 between identities). Its blocks are in the history as
appends that have definitely failed, so the history checker reports whoever reads one. An answer
other than no is a trespass, which `final_checks` reports.
"""

from __future__ import annotations

from collections.abc import Callable

from logservice_wire.errors import LogServiceError

from logservice.ids import Lsn
from logservice.owner import Author
from logservice.rsm import commands
from logservice.sim.clients.client import Client
from logservice.sim.history import Append, Outcome

_PAUSE = 3.0
"""In pauses of a client. Its operations cost as much as theirs, so it does fewer."""


class Neighbour(Client):
    """One per shard."""

    identity = "neighbour"

    async def run(self) -> None:
        """Until told to stop."""
        number = 0
        while not self.stopping:
            await self.pause(_PAUSE)
            number += 1
            history = self.history
            batch = f"{self.name}-{number}"
            draw = self.chance.random()
            try:
                if history.jobs.names and self.chance.random() < 0.2:
                    await self._namesake()
                elif draw < 0.5:
                    await self._append(batch)
                elif draw < 0.7:
                    await self._release_hold()
                elif self.history.epoch:
                    await self._writer()
            except LogServiceError as error:
                self.failed(error)

    async def _append(self, batch: str) -> None:
        """Append in another's session, under its writer's epoch, or under that epoch alone."""
        history, chance = self.history, self.chance
        block = self.block(batch, 1)
        epoch = history.epoch
        if history.opened and (not epoch or chance.random() < 0.7):
            theirs = chance.choice(history.opened)
            request = self.request(
                block,
                1,
                session=theirs.session,
                nonce=theirs.nonce,
                sequence=max(1, theirs.sequence + chance.randint(-1, 2)),
                epoch=epoch,
            )
        elif epoch:
            request = self.request(block, 1, epoch=epoch)
        else:
            return
        self.note(Append(self.name, batch, 1, self.now, self.now, Outcome.FAILED, 0))
        applied = await self.submit(request)
        self._trespassed(f"{batch} was appended at LSN {applied.lsn}: {request}")

    async def _namesake(self) -> None:
        """Open a name that a job has, further on: it is another name, for it is this identity's."""
        name, epoch = self.chance.choice(sorted(self.history.jobs.names.items()))
        content = bytes(commands.SESSION_CONTENT_BYTES)
        await self.command(
            lambda by: commands.OpenNamedSession(by, epoch + 50, 0, 1, content, name)
        )

    async def _release_hold(self) -> None:
        name = self.chance.choice(sorted(self.history.held) or ["hold-1"])
        applied = await self.command(lambda by: commands.ReleaseHold(by, False, name))
        if not applied.duplicate:
            self._trespassed(f"{name} was released")

    async def _writer(self) -> None:
        epoch = self.history.epoch
        lsn = Lsn(max(1, self.history.applied_lsn))
        makers: list[Callable[[Author], commands.Command]] = [
            lambda by: commands.ReleaseWriter(by, False, epoch),
            lambda by: commands.AcquireWriter(by, False, epoch, True, self.name),
            lambda by: commands.Truncate(by, lsn, epoch),
        ]
        if self.world.config.forks:
            del makers[1]  # a fork leaves the right with nobody, for anybody (seed 76000371)
        applied = await self.command(self.chance.choice(makers))
        self._trespassed(f"the writer's epoch {epoch} served it: {applied}")

    def _trespassed(self, what: str) -> None:
        self.history.trespasses.append(f"{self.identity}: {what}")
