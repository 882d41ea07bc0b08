"""service: one of the database's own services (TN, CN, proxy), as it registers and gets commands.

Theory of operation. A service exists for HAKeeper as long as it sends heartbeats. The answer to
each carries the commands that wait for it, until it acknowledges them. A command is acknowledged
after its handler returned, with the next heartbeat. So it is handled at least once, and twice when
the process or the answer was lost in between: handlers have to be idempotent. A handler that raises
is called again with the next heartbeat, and the commands behind it wait, so that they stay in
order.

While HAKeeper is silent the service goes on, and says since when it was not heard (`silent_s`). A
process that is started again under the same name takes over where the other one was, commands
included; if that one still runs, its `run` ends with StaleEpoch.

What the service has replayed of a log (`replayed`) holds the truncation of that log, from a
heartbeat or two later on (`held`) until the service was silent for thirty seconds, or forgets the
log. `holds` is what the last answer said. The LSN may go back; what is gone by then stays gone.
Before cluster version 2 there are no such holds: the service is registered all the same, and
nothing is held.

A service of the kind ``tn`` may serve TN shards (`tn_shards`). A handler of commands that takes
longer than a few seconds costs it its TN shards, because no heartbeat is sent meanwhile.

When the name belongs to a living service of another identity, `run` raises PermissionDenied.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Mapping

from logservice_wire.boottime import boottime_s
from logservice_wire.bounds import REPLAYED_PER_SERVICE_MAX
from logservice_wire.errors import (
    ClientClosed,
    DeadlineExceeded,
    HoldRefused,
    InvalidArgument,
    LogServiceError,
    NotReady,
    PermissionDenied,
    ShardNotFound,
    StaleEpoch,
    TooLarge,
)
from logservice_wire.rpcs import HEARTBEAT
from logservice_wire.v1 import hakeeper_pb2

from logservice_client.arguments import seconds
from logservice_client.bounds import (
    SERVICE_FAREWELL_TIMEOUT_S,
    SERVICE_HEARTBEAT_S,
    SERVICE_HEARTBEAT_TIMEOUT_S,
    SERVICE_TOO_EARLY_S,
    TIMEOUT_DEFAULT_S,
)
from logservice_client.caller import Caller
from logservice_client.tn_shards import TnShards, served

Handler = Callable[[hakeeper_pb2.ServiceCommand], Awaitable[None]]


class Service:
    """Get it from `HakeeperClient.service`, and `run` it in a task of its own."""

    def __init__(
        self,
        caller: Caller,
        service_id: str,
        kind: str,
        address: str,
        labels: Mapping[str, str],
        handler: Handler,
        interval_s: float = SERVICE_HEARTBEAT_S,
        tn_shards: TnShards | None = None,
    ) -> None:
        """Nothing is sent before `run`."""
        self._caller = caller
        self._said = hakeeper_pb2.HeartbeatRequest(
            service_id=service_id,
            kind=kind,
            address=address,
            labels=labels,
            boot_id=1 + secrets.randbelow(2**61),
        )
        self._handler = handler
        self.tn_shards = tn_shards
        """What the process serves; None when it takes no TN shards."""
        self._interval_s = interval_s
        self._done: list[int] = []
        self._replayed: dict[int, int] = {}
        self._too_early_until_s = 0.0
        self._answered = asyncio.Event()
        self.work_state = ""
        """What the service shall do, as the last answer said it: "working", or "draining" once a
        person has told it so, and "drained" after it said that it is. Empty: not known."""
        self.holds: Mapping[int, hakeeper_pb2.ReplayedHold] = {}
        """By log, what the last answer said of the hold for what was replayed."""
        self._heard_s: float | None = None
        self.failures: int = 0
        """How many handlers have raised."""
        self.unheard: int = 0
        """How many heartbeats were not answered in time."""

    @property
    def silent_s(self) -> float:
        """Seconds since HAKeeper took a heartbeat; infinite before the first one."""
        if self._heard_s is None:
            return float("inf")
        return boottime_s() - self._heard_s

    def relabel(self, labels: Mapping[str, str]) -> None:
        """Say these labels from the next heartbeat on."""
        self._said.labels.clear()
        self._said.labels.update(labels)

    def drained(self, nothing_left: bool = True) -> None:
        """Say from the next heartbeat on that the service, told to drain, has no work left."""
        self._said.drained = nothing_left

    def replayed(self, shard_id: int, lsn: int) -> None:
        """The service has all records of the log through `lsn`, 0 for none, and wants those behind
        it kept. Said from the next heartbeat on. Needs the role truncate over the log.

        Raises TooLarge for more logs than a service may have.
        """
        if shard_id not in self._replayed and len(self._replayed) >= REPLAYED_PER_SERVICE_MAX:
            raise TooLarge(
                "too many logs",
                name="replayed",
                value=len(self._replayed) + 1,
                limit=REPLAYED_PER_SERVICE_MAX,
            )
        if shard_id < 1 or lsn < 0:
            raise InvalidArgument("no such log or LSN", field="replayed")
        self._replayed[shard_id] = lsn

    def forget(self, shard_id: int) -> None:
        """The service replays the log no more; its hold goes with the next heartbeat."""
        self._replayed.pop(shard_id, None)

    async def held(self, shard_id: int, *, timeout: float = TIMEOUT_DEFAULT_S) -> int:
        """Wait until the log is held for what the service has replayed; return the LSN from which
        on records stay.

        Raises HoldRefused{first_lsn} when records behind what was replayed are gone,
        ShardNotFound when there is no such log, DeadlineExceeded.
        """
        allowed_s = seconds(timeout)
        try:
            with self._caller.life.under_way():
                async with asyncio.timeout(allowed_s):
                    while (lsn := self._held(shard_id)) == 0:
                        await self._answered.wait()
        except TimeoutError as error:
            raise DeadlineExceeded(f"shard {shard_id} is not held yet") from error
        return lsn

    def _held(self, shard_id: int) -> int:
        if shard_id not in self._replayed:
            raise InvalidArgument("say first what was replayed", field="shard_id")
        said, wanted = self.holds.get(shard_id), self._replayed[shard_id] + 1
        if said is None:
            return 0
        if said.gone:
            raise ShardNotFound(f"no shard {shard_id}", shard=shard_id)
        if said.first_lsn > wanted:
            raise HoldRefused("records are truncated already", first_lsn=said.first_lsn)
        return said.held_lsn if said.held_lsn <= wanted else 0

    async def run(self) -> None:
        """Send heartbeats and handle commands until it is cancelled.

        Raises PermissionDenied when the name is another identity's or a log may not be held,
        StaleEpoch when a newer process of this identity has taken the name over, TooLarge for what
        it says of itself, ClientClosed; every other failure is tried again.
        """
        try:
            async with served(self.tn_shards):
                while True:
                    try:
                        await self._beat()
                    except (ClientClosed, PermissionDenied, StaleEpoch, TooLarge):
                        raise
                    except LogServiceError:
                        self.unheard += 1
                    await asyncio.sleep(self._interval_s)
        except asyncio.CancelledError:
            await self._leave()
            raise

    async def _leave(self) -> None:
        """Say that nothing is served any more, so that nobody has to wait for this process."""
        if self.tn_shards is not None and self._heard_s is not None:
            self._said.sequence += 1
            self._say_serving()
            with contextlib.suppress(LogServiceError):
                await self._send(SERVICE_FAREWELL_TIMEOUT_S)

    async def _beat(self) -> None:
        acked = self._done
        self._said.acked_commands[:] = acked
        self._said.sequence += 1
        loop = asyncio.get_running_loop()
        self._say_serving()
        sent_s = boottime_s()
        self._say_replayed(self._replayed if loop.time() >= self._too_early_until_s else {})
        try:
            answer = await self._send()
        except NotReady as error:
            if "cluster_version" not in error.metadata or not self._said.replayed:
                raise
            self._too_early_until_s = loop.time() + SERVICE_TOO_EARLY_S
            self._say_replayed({})
            answer = await self._send()
        if self.tn_shards is not None:
            self.tn_shards.answered(answer.serve, sent_s, answer.tn_stop_ms / 1000)
        self.work_state = answer.work_state
        self.holds = {one.shard_id: one for one in answer.replayed}
        self._answered.set()
        self._answered = asyncio.Event()
        self._heard_s = boottime_s()
        self._done = []
        for command in answer.commands:
            if command.id in acked:
                continue
            try:
                await self._handler(command)
            except Exception:  # noqa: BLE001 - the handler is the caller's; it gets the command again
                self.failures += 1
                return
            self._done.append(command.id)

    def _say_replayed(self, replayed: Mapping[int, int]) -> None:
        del self._said.replayed[:]
        for shard_id, lsn in replayed.items():
            self._said.replayed.add(shard_id=shard_id, lsn=lsn)

    def _say_serving(self) -> None:
        del self._said.serving[:]
        if self.tn_shards is not None:
            self._said.takes_tn_shards = not self.tn_shards.closing
            for one in self.tn_shards.serving():
                self._said.serving.add(tn_shard_id=one.tn_shard_id, replica=one.replica)

    async def _send(
        self, timeout_s: float = SERVICE_HEARTBEAT_TIMEOUT_S
    ) -> hakeeper_pb2.HeartbeatResponse:
        return await self._caller.call(None, HEARTBEAT, self._said, timeout_s)
