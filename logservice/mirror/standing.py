"""standing: what an operator is shown of a pair: both logs as their clusters say it now.

It asks both clusters at once and no process that mirrors, so it is right whether one runs or not.
What a cluster does not say within MIRROR_ASKED_S is None.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from logservice_client import LogClient
from logservice_wire.errors import LogServiceError, ShardNotFound
from logservice_wire.v1 import log_pb2

from logservice import bounds
from logservice.mirror.mirroring import Pair, is_of


@dataclass(frozen=True, slots=True)
class Standing:
    """state: mirror, promoted, in-use, missing (no such log yet), or unknown. problem: why somebody
    should look, or "".
    """

    pair: Pair
    state: str
    first_lsn: int | None
    next_lsn: int | None
    source_end_lsn: int | None
    source_closed: bool | None
    hold_lsn: int | None
    problem: str

    @property
    def behind(self) -> int | None:
        """LSNs of the source that are not mirrored."""
        if self.state != "mirror" or self.source_end_lsn is None or self.next_lsn is None:
            return None
        return max(0, self.source_end_lsn - self.next_lsn)


async def standing(source: LogClient, target: LogClient, pair: Pair, hold: str) -> Standing:
    """How the pair stands."""
    (there, why_there), (here, why_here) = await asyncio.gather(
        _status(source, pair.name), _status(target, pair.into)
    )
    state = _state(here, why_here)
    silent = [f"source: {why_there}"] if there is None else []
    silent += [f"target: {why_here}"] if here is None else []
    problem = "; ".join(silent)
    if there is not None and state == "in-use":
        problem = f"target: {pair.into} is a log of its own"
    hold_lsn = None
    if there is not None:
        held = {one.name: one.lsn for one in there.holds}
        hold_lsn = held.get(hold)
        if state == "mirror" and hold_lsn is None:
            problem = f"the source has no hold {hold}"
    if here is not None and there is not None and state == "mirror":
        wanted_lsn = max(here.restoring.base_lsn, here.restoring.next_lsn)
        if there.position.first_lsn > wanted_lsn:
            last = there.position.first_lsn - 1
            problem = f"LSNs {wanted_lsn} to {last} were truncated before they were mirrored"
        elif not is_of(here, there):
            problem = "the source was continued by force, or is another log"
    return Standing(
        pair,
        state,
        None if here is None else here.position.first_lsn,
        None if here is None else here.position.applied_lsn + 1,
        None if there is None else there.position.applied_lsn + 1,
        None if there is None else bool(there.closed_index),
        hold_lsn,
        problem,
    )


def _state(here: log_pb2.GetShardStatusResponse | None, why: str) -> str:
    if here is None:
        return "missing" if why == _MISSING else "unknown"
    if here.HasField("restoring"):
        return "mirror" if here.restoring.mirror else "in-use"
    return "promoted" if here.position.lineage.number else "in-use"


_MISSING = "there is no such log yet"


async def _status(
    client: LogClient, name: str
) -> tuple[log_pb2.GetShardStatusResponse | None, str]:
    """The log's status, or why there is none."""
    try:
        async with asyncio.timeout(bounds.MIRROR_ASKED_S):
            info = await client.hakeeper.resolve_shard(name, fresh=True)
            return await client.shard(info.shard_id).status(), ""
    except TimeoutError:
        return None, f"no answer within {bounds.MIRROR_ASKED_S:g} s"
    except ShardNotFound:
        return None, _MISSING
    except LogServiceError as error:
        return None, str(error)
