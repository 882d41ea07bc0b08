"""Measuring: a store measures one thing when a person asks, and nothing otherwise.

Theory of operation. A measurement adds load, so there is one at a time in a store, and whoever
comes meanwhile is told so at once. It ends by itself within seconds, and at once when its caller
leaves. A disk may not let its thread end. Then the caller is told that the disk is stuck, the
thread stays where it is and holds up nothing, and that directory is not measured again before the
thread has ended.

A disk is not measured while it is full or near it: the file would take what the log needs.

INV-MEASURE-3: no measurement makes the loop wait, and none outlives its caller by more than one
operation of a disk.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

from logservice_wire.errors import Busy, InvalidArgument

from logservice import bounds
from logservice.ids import StoreId
from logservice.nodehost.assembly.store_directory import StoreDirectory
from logservice.nodehost.assembly.store_parts import StoreParts
from logservice.nodehost.disks.apart import apart
from logservice.nodehost.measuring.disk import Ended, measure_disk
from logservice.nodehost.measuring.figure import Figure, Verdict, at_most, fact, quantile
from logservice.nodehost.measuring.network import ECHO, Way, answer_echo

_NEEDS = 2
"""The first cluster version in which every store may be asked for an echo."""


class Measuring:
    """One per store, on its loop thread."""

    def __init__(
        self,
        parts: StoreParts,
        about_disk: Callable[[str], Sequence[Figure]],
        about_machine: Callable[[], Sequence[Figure]],
        forget: Callable[[int], None],
    ) -> None:
        """`about_disk`: what there is to say about the file system of a path, asked in a thread;
        `about_machine`: the same of the machine and the process. `forget`: see `measure_disk`.
        """
        self._parts = parts
        self._about_disk = about_disk
        self._about_machine = about_machine
        self._forget = forget
        self._busy = ""
        self._at_disks: dict[str, asyncio.Future[list[Figure]]] = {}
        parts.host.requests.register(ECHO, answer_echo)

    async def measure(self, what: str, target: str) -> Sequence[Figure]:
        """Raises InvalidArgument for what cannot be measured, Busy while something is."""
        if self._busy:
            retry_ms = int(bounds.SELF_TEST_RETRY_S * 1000)
            raise Busy(
                f"the store measures something already: {self._busy}", retry_after_ms=retry_ms
            )
        self._busy = f"{what} {target}".rstrip()
        try:
            if what == "disk":
                return await self._disk(target)
            if what == "network":
                return await self._network(StoreId(target))
            if what == "machine":
                return await self._machine()
        finally:
            self._busy = ""
        raise InvalidArgument("it is disk, network or machine", field="what")

    # --- disks ------------------------------------------------------------------------------------

    async def _disk(self, path: str) -> Sequence[Figure]:
        found = [one for one in self._parts.directories if one.data.path == path]
        if not found:
            there = ", ".join(one.data.path for one in self._parts.directories)
            raise InvalidArgument(f"the data directories here are {there}", field="target")
        directory = found[0]
        before = self._at_disks.get(path)
        if before is not None and not before.done():
            return [fact("answers", "an earlier measurement still waits for it", Verdict.BAD)]
        if why := _refusal(directory):
            return [fact("answers", why, Verdict.BAD)]
        ends = threading.Event()

        def work() -> list[Figure]:
            vfs = directory.seams.vfs
            return [*self._about_disk(path), *measure_disk(vfs, path, ends, self._forget)]

        at_disk = self._at_disks[path] = apart(work, "self-test")
        at_disk.add_done_callback(_take)
        try:
            done, _ = await asyncio.wait([at_disk], timeout=bounds.SELF_TEST_DISK_S)
        finally:
            ends.set()
        if not done:
            text = f"it is stuck: no answer in {bounds.SELF_TEST_DISK_S:g} s"
            return [fact("answers", text, Verdict.BAD)]
        try:
            return at_disk.result()
        except (OSError, Ended) as error:
            return [fact("answers", f"{type(error).__name__}: {error}", Verdict.BAD)]

    # --- network ----------------------------------------------------------------------------------

    async def _network(self, store: StoreId) -> Sequence[Figure]:
        host = self._parts.host
        if store == host.identity.store_id or store not in self._parts.book.stores:
            others = sorted(self._parts.book.stores - {host.identity.store_id})
            raise InvalidArgument(f"the other stores are {', '.join(others)}", field="target")
        host.cluster_version.need(_NEEDS)
        return await Way(host.requests, store, host.clock.monotonic, host.clock.wall_us).measure()

    # --- machine ----------------------------------------------------------------------------------

    async def _machine(self) -> Sequence[Figure]:
        found = await asyncio.wait_for(
            apart(lambda: list(self._about_machine()), "self-test"), bounds.SELF_TEST_DISK_S
        )
        loop, late_us = asyncio.get_running_loop(), []
        for _ in range(bounds.SELF_TEST_TIMERS):
            due_s = loop.time() + bounds.SELF_TEST_TIMER_S
            await asyncio.sleep(bounds.SELF_TEST_TIMER_S)
            late_us.append(max(0.0, loop.time() - due_s) * 1e6)
        late_us.sort()
        slow, bad = bounds.SELF_TEST_LATE_SLOW_US, bounds.SELF_TEST_LATE_BAD_US
        return [
            at_most("timer late p50", quantile(late_us, 0.5), "us", slow, bad),
            at_most("timer late p99", quantile(late_us, 0.99), "us", 2 * slow, 2 * bad),
            at_most("timer late max", late_us[-1], "us", 4 * slow, 4 * bad),
            *found,
        ]


def _refusal(directory: StoreDirectory) -> str:
    """Why the disk is not measured now; empty if it may be."""
    used = directory.used
    if used.failed:
        return f"it failed: {used.failed}"
    size = bounds.SELF_TEST_BYTES_MAX
    if used.disk.full or used.disk.closed or used.disk.free_bytes < 2 * size:
        return (
            f"it is not measured: {used.disk.free_bytes >> 20} MiB are free, or it counts as full"
        )
    if not directory.logdb.leaves_promised(size):
        return "it is not measured: the file would take what is kept for the log"
    return ""


def _take(at_disk: asyncio.Future[list[Figure]]) -> None:
    if not at_disk.cancelled():
        at_disk.exception()  # whoever asked was told, or has left
