"""Loud: a client that appends more to its log than the disks take.

While it is at work, the other logs of its world are quiet ones. Each of their appends ends soon,
whatever the loud log has waiting (QUIET of `final_checks`).
"""

from __future__ import annotations

import asyncio

from logservice_wire.block import encode_block
from logservice_wire.errors import LogServiceError

from logservice.sim.clients.client import Client
from logservice.sim.history import Append, Outcome

_UNDER_WAY = 40
"""Appends that are under way together."""

_BYTES = 2000
"""Of a block: several times what a commit group of these worlds takes."""


class Loud(Client):
    """One per world, on its first log."""

    async def run(self) -> None:
        """Until the world comes to rest."""
        await asyncio.gather(*(self._appends(f"{self.name}-{one}") for one in range(_UNDER_WAY)))

    async def _appends(self, name: str) -> None:
        number = 0
        while not self.world.healing:
            number += 1
            await self._append(f"{name}-{number}")

    async def _append(self, batch: str) -> None:
        block = encode_block([batch.encode().ljust(_BYTES, b".")], 0)
        self.history.epochs[batch] = epoch = self.history.epoch
        request = self.request(block, 1, epoch=epoch)
        invoked, lsn, outcome = self.now, 0, Outcome.OK
        try:
            lsn = (await self.submit(request)).lsn
        except LogServiceError as error:
            outcome = self.failed(error)
            await self.pause()
        self.note(Append(self.name, batch, 1, invoked, self.now, outcome, lsn))
