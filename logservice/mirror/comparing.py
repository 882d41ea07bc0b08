"""comparing: up to which LSN a mirror is known to be the same as its source.

Theory of operation. Both clusters are asked for the digest of a short range, at the same time, then
of the next one. So it can be ended anywhere, says how far it is, and waits for no cluster longer
than for one range. The ranges grow until one takes about COMPARED_STEP_S.

What was found stays true while the source is appended to. A log never changes what it has at an
LSN, and a truncation only takes away; so if both had the same below an LSN once, they have the same
of what is left of it. That holds within a lineage. A handle refuses answers of another lineage than
the one it knows; the mirror's handle is the exception, so its lineage is looked at here, and with
another one everything is compared again. What a truncation takes away in either log before it was
compared is passed over: the mirror's own is gone, and what only the source has let go is vouched
for by the checksums of its blocks.

INV-MIRROR-7: below `equal_lsn` everything that both logs had when it was compared is the same in
both, and of the lineages that they have now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from logservice_wire.errors import Truncated

from logservice import bounds
from logservice.mirror.mirroring import Mirror

_FIRST_STEP_LSNS: Final = 64
"""One record may have 8 MiB."""


class Comparison:
    """Of a mirror, both of whose logs were found."""

    def __init__(
        self,
        mirror: Mirror,
        *,
        say: Callable[[str], None] = lambda _: None,
        patience_s: float = bounds.RESTORE_PATIENCE_S,
    ) -> None:
        """`patience_s`: how long calls may fail, one after another, before `up_to` raises."""
        self.from_lsn = 0
        """Where the first range began; 0: nothing was compared yet."""
        self.equal_lsn = 0
        self._mirror = mirror
        self._say = say
        self._patience_s = patience_s
        self._lineage = b""
        self._step_lsns = _FIRST_STEP_LSNS
        self._said_s = 0.0

    async def first_lsn(self) -> int:
        """The first LSN that both logs have and that is not compared yet."""
        mirror = self._mirror
        source, copy = await asyncio.gather(mirror.source.status(), mirror.copy.status())
        lineage = copy.position.lineage.id
        if lineage != self._lineage:
            self._lineage = lineage
            self.from_lsn = self.equal_lsn = 0
        return max(self.equal_lsn, copy.restoring.base_lsn, source.position.first_lsn)

    async def up_to(self, end_lsn: int) -> None:
        """Compare what is not compared yet and lies below `end_lsn`, which both have.

        Raises MirrorEnded when they differ, and what the calls raise.
        """
        loop = asyncio.get_running_loop()
        self._said_s = loop.time()
        lsn = await self.first_lsn()
        while lsn < end_lsn:
            began_s = loop.time()
            to_lsn = min(end_lsn, lsn + self._step_lsns)
            try:
                await self._mirror.compared(lsn, to_lsn, patience_s=self._patience_s)
            except Truncated:
                lsn = await self.first_lsn()
                continue
            self.from_lsn = self.from_lsn or lsn
            self.equal_lsn = lsn = to_lsn
            self._adapt(loop.time() - began_s)
            if loop.time() - self._said_s >= bounds.MIRROR_PROGRESS_S:
                self._said_s = loop.time()
                self._say(f"compared up to LSN {lsn - 1} of {end_lsn - 1}")

    def _adapt(self, took_s: float) -> None:
        if took_s > 2 * bounds.MIRROR_COMPARED_STEP_S:
            self._step_lsns = max(1, self._step_lsns // 2)
        elif took_s < bounds.MIRROR_COMPARED_STEP_S:
            self._step_lsns = min(2 * self._step_lsns, bounds.MIRROR_COMPARED_STEP_LSNS_MAX)
