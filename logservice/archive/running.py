"""running: the archiver of a cluster: finds the chosen logs, and brings each into the archive.

Theory of operation. Each chosen log has a task that ships range after range. An error ends the
attempt and not the task: it is logged, counted, and tried again after a while, for ever, because
what stops an archive (no leader, a full disk, a grant that is missing) is cured outside of it, and
the hold keeps the records meanwhile. A log that was deleted ends its task; what is archived of it
stays. A log that was continued by force is an error like the others, and one that stays: somebody
has to choose another archive for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable

from logservice_client import LogClient
from logservice_wire.errors import LineageChanged, LogServiceError, ShardDeleted, ShardRestoring
from logservice_wire.v1 import hakeeper_pb2
from prometheus_client import start_http_server

from logservice import bounds
from logservice.archive import cluster_document
from logservice.archive.folder import Files
from logservice.archive.lag import Metrics
from logservice.archive.manifest import Manifest, mark
from logservice.archive.settings import Settings, keys_of
from logservice.archive.shipping import Shipper
from logservice.background import begin_task
from logservice.safe_text import safe_text

logger = logging.getLogger(__name__)


class Archiver:
    """All chosen logs of one cluster."""

    def __init__(
        self,
        client: LogClient,
        settings: Settings,
        files: Files,
        *,
        reached: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`reached`: see `Shipper`."""
        self.metrics = Metrics()
        self._client = client
        self._settings = settings
        self._files = files
        self._reached = reached
        self._keys = keys_of(settings)
        if self._keys is not None:
            self._keys()  # what is wrong with them is said at the start
        self._turns = asyncio.Semaphore(bounds.ARCHIVE_LOGS_AT_ONCE)
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._cluster_id = ""
        self._now_s = time.monotonic
        self._describe_s = -math.inf
        self._reads_grants = True

    async def run(self) -> None:
        """Go on until cancelled. Raises InvalidArgument for another cluster's archive."""
        await self._begin()
        if self._settings.archive.metrics_port:
            start_http_server(
                self._settings.archive.metrics_port, "127.0.0.1", registry=self.metrics.registry
            )
        try:
            while True:
                with contextlib.suppress(LogServiceError):
                    for shipper in await self._chosen():
                        shard_id = shipper.shard.shard_id
                        if shard_id not in self._tasks:
                            self._tasks[shard_id] = self._begin_shipping(shipper)
                await asyncio.sleep(bounds.ARCHIVE_CHOOSE_S)
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def run_once(self) -> tuple[int, list[str]]:
        """Archive what there is now; returns how many logs, and the names that are chosen and that
        no open log has. A log that is being restored has nothing to archive. Raises what shipping
        raises.
        """
        await self._begin()
        shippers = await self._chosen()
        for shipper in shippers:
            wanted = (await shipper.shard.status()).position.applied_lsn + 1
            with contextlib.suppress(ShardRestoring):
                while shipper.lag.archived_lsn < wanted and await shipper.ship(to_tail=True):
                    pass
        names = {shipper.name for shipper in shippers}
        return len(shippers), self._settings.logs.unmatched(names)

    async def _begin(self) -> None:
        state = await self._client.hakeeper.cluster_state()
        self._cluster_id = state.cluster_id
        await asyncio.to_thread(self._files.check)
        await asyncio.to_thread(mark, self._files, self._cluster_id)

    async def _describe(self, infos: list[hakeeper_pb2.ShardInfo]) -> None:
        """Write what there is to know of the cluster, now and then. Where the access list may not
        be read it is not asked for again.
        """
        if self._now_s() < self._describe_s:
            return
        self._describe_s = self._now_s() + bounds.CLUSTER_DOCUMENT_S
        document = await cluster_document.describe(self._client, infos, grants=self._reads_grants)
        self._reads_grants = document.grants is not None
        await asyncio.to_thread(cluster_document.write, self._files, document)

    async def _chosen(self) -> list[Shipper]:
        """A shipper for each chosen log that lives; what is known of all of them is written."""
        found = []
        infos = await self._client.hakeeper.list_shards(states=("open", "closed"))
        await self._describe(infos)
        for info in infos:
            if self._settings.logs.choose(info.name, info.labels):
                manifest = Manifest(self._files, info.shard_id)
                shipper = Shipper(
                    self._client.shard(info.shard_id),
                    info.name,
                    self._cluster_id,
                    manifest,
                    self._settings.archive,
                    self.metrics,
                    keys=self._keys,
                    turns=self._turns,
                    reached=self._reached,
                )
                found.append(shipper)
        return found

    def _begin_shipping(self, shipper: Shipper) -> asyncio.Task[None]:
        def ended(task: asyncio.Task[None]) -> None:
            # One that broke begins anew when the logs are chosen next; another one has no more.
            if task.cancelled() or task.exception() is not None:
                self._tasks.pop(shipper.shard.shard_id, None)

        return begin_task(self._ship_on(shipper), ended)

    async def _ship_on(self, shipper: Shipper) -> None:
        name = safe_text(shipper.name)
        with contextlib.suppress(OSError):
            await asyncio.to_thread(shipper.manifest.remove_unnamed)
        while True:
            try:
                await shipper.ship()
            except ShardDeleted:
                self.metrics.forget(str(shipper.shard.shard_id))
                logger.warning("log %s was deleted; its archive stays", name)
                return
            except ShardRestoring:
                # What it has is not verified yet; nothing of it may be truncated meanwhile.
                await asyncio.sleep(bounds.ARCHIVE_RETRY_S)
            except LineageChanged as error:
                self.metrics.failures.labels(str(shipper.shard.shard_id)).inc()
                logger.error(
                    "log %s was continued by force behind LSN %d: its archive is of the history "
                    "before that, and takes nothing more; archive it in another place",
                    name,
                    error.number("fork_lsn"),
                )
                await asyncio.sleep(bounds.ARCHIVE_RETRY_S)
            except (LogServiceError, OSError) as error:
                self.metrics.failures.labels(str(shipper.shard.shard_id)).inc()
                logger.warning("log %s is not archived now: %s", name, safe_text(str(error)))
                await asyncio.sleep(bounds.ARCHIVE_RETRY_S)
