"""process: the life of a store process, from tuning over serving until a signal to its exit code.

A SIGTERM or SIGINT begins a graceful stop: the store takes no new calls, hands its leaderships away
and closes the log. A second signal stops at once. That is as safe, and only slower for the clients
of the shards it led. Every exception but an operating error ends in `crash`.

A SIGHUP reads the configuration again (`server.reload`): one that comes during the start waits for
its end, and a store that stops reads nothing any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, Final

from logservice_wire.freed_memory import keep_freed_memory

from logservice.background import BROKEN
from logservice.config import StoreConfig, doubts
from logservice.events import Event, emit
from logservice.invariants import InvariantViolation
from logservice.server import descriptors, log_format, log_lines
from logservice.server.crash import crash
from logservice.server.edge.wake_ups import WakeUpLoop
from logservice.server.monitor.own.loop_turns import LoopTurns
from logservice.server.store import Store
from logservice.server.version import server_version

logger = logging.getLogger(__name__)

_SWITCH_INTERVAL_S: Final = 0.0002
"""A thread that comes back from fdatasync waits this long for the interpreter lock while the loop
is busy. With Python's 5 ms it manages 242 fsyncs a second, with 0.2 ms 880.
"""

_GC_THRESHOLDS: Final = (2_000, 100, 500)
"""Entries, messages and futures come and go by the ten thousand and form no cycles, so reference
counts free them. With Python's default the collector walks the whole heap, with every index of
every log in it, so often that the pauses show in the tail latency: here it does so after a hundred
million new objects. A look at the youngest objects stops the event loop for 1.5 microseconds for
each that is still alive. All such looks together cost the same whatever the first number is; with
50 000 HAKeeper stood still for 50 ms now and then while it repaired a lost zone, with 10 000 for
15 ms (docs/scale.md).
"""


def run_store(
    config: StoreConfig,
    read: Callable[[], StoreConfig] | None = None,
    hung_up: Callable[[], bool] = lambda: False,
) -> int:
    """Run a store until a signal; returns the exit code. `read`: what its file says now, see
    `Reloads`. `hung_up`: whether SIGHUP came between the reading of `config` and this call.

    Raises LogServiceError or OSError when it cannot start (port, data directory, identity).
    """
    # Whatever this process creates (records, exports, the audit log) only its own user may read.
    os.umask(0o077)
    tune_interpreter()
    log_format.quiet()
    form = log_format.formatter_of(config.logging, config.store.store_id)
    with log_lines.to_stderr(form, config.logging.level.upper(), stdout=True):
        logger.info("version %s, up to %d open files", server_version(), descriptors.raise_limit())
        for doubt in doubts(config):
            logger.warning("%s", doubt)
        try:
            turns = LoopTurns()
            with asyncio.Runner(loop_factory=lambda: turns.loop(WakeUpLoop)) as runner:
                runner.run(_serve(config, turns, read, hung_up))
        except InvariantViolation as error:
            crash(error)
    return 0


def tune_interpreter() -> None:
    """Set what a process that runs a store, or measures a part of one, needs of its interpreter."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    gc.set_threshold(*_GC_THRESHOLDS)
    keep_freed_memory()


async def _serve(
    config: StoreConfig,
    turns: LoopTurns,
    read: Callable[[], StoreConfig] | None,
    hung_up: Callable[[], bool],
) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_on_loop_exception)
    stopping = asyncio.Event()

    def on_signal() -> None:
        if stopping.is_set():
            logger.warning("second signal: stopping at once")
            log_lines.say_last()
            os._exit(128 + signal.SIGTERM)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    store = Store(config, turns=turns, read=read)
    signal.signal(signal.SIGHUP, lambda *_: _reload_soon(loop, store))
    if hung_up():
        store.reloads.ask()
    try:
        await store.start()
        # What is alive now stays so; the collector need not look at it again.
        gc.freeze()
        name = config.store.store_id
        emit(
            logger,
            Event.STORE_STARTED,
            store=name,
            client=store.client_address,
            peer=store.peer_address,
        )
        await stopping.wait()
        emit(logger, Event.STORE_STOPPING, store=name)
    finally:
        await store.stop()
    emit(logger, Event.STORE_STOPPED, store=config.store.store_id)


def _reload_soon(loop: asyncio.AbstractEventLoop, store: Store) -> None:
    """On SIGHUP. It is no handler of the loop: a loop that closes would leave the signal to the
    system, which would end the process while it stops.
    """
    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(store.reloads.ask)


def _on_loop_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if isinstance(error, InvariantViolation) or (BROKEN in context and error is not None):
        crash(error)
    with contextlib.suppress(Exception):
        loop.default_exception_handler(context)
