"""Reloads: the configuration in effect, and how another one replaces it while the store runs.

Theory of operation. A reload reads the file as a start does, with the same checks and the same
`--set` words, which go on winning over it. Then it compares with what is in effect. What can be
taken up is taken up (`effects`), all of it together on the event loop; the rest is named, and stays
as it was until the store starts again.

A reload is asked for by SIGHUP or by the verb (`ReloadConfig`). Signals that come while one is
under way become one more reload behind it. One that comes before the store serves waits until then.

INV-RELOAD-2: a configuration that a start would refuse changes nothing.

INV-RELOAD-3: nothing is taken up of a configuration of another store or another cluster, which
stands in the place of the right one by mistake: its administrators would get rights here.

A file that cannot be read in RELOAD_READ_S is refused, too; the next reload begins anew.

The configuration in effect as a whole need not pass the checks of a file: of two settings that go
together, one may wait for a restart. `with_reloaded` then makes a pair that the file never had. So
it is checked, too, and a reload that would make it wrong is refused.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from logservice_wire.errors import InvalidArgument, NotReady, VerbRefused

from logservice import bounds
from logservice import config as configuration
from logservice.config import ConfigError, StoreConfig
from logservice.events import Event, emit
from logservice.nodehost.disks.apart import apart
from logservice.server.reload.effects import EFFECTS, Effect, changed, with_reloaded

_DIGEST_CHARACTERS: Final = 16
_DIRECTORIES: Final = "store.data_directories"

logger = logging.getLogger(__name__)

_encoder = msgspec.json.Encoder(order="deterministic")


@dataclass(frozen=True, slots=True)
class InEffect:
    """Which configuration is in effect, since when (microseconds since 1970), and which settings of
    the file wait for a restart, as far as the newest reload has seen.
    """

    digest: str
    since_us: int
    waiting: tuple[str, ...] = ()

    def told(self) -> dict[str, Any]:
        """The same as fields of `StoreStatus`."""
        return {
            "config_digest": self.digest,
            "config_since_us": self.since_us,
            "config_waiting": self.waiting,
        }


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What differed from what was in effect, by what becomes of it."""

    taken_up: tuple[str, ...]
    needs_restart: tuple[str, ...]
    first_start: tuple[str, ...]


class Reloads:
    """One per store process, used on its loop."""

    def __init__(self, config: StoreConfig, read: Callable[[], StoreConfig] | None = None) -> None:
        """`config` is in effect. `read` gives what the file says now, and raises ConfigError; it
        runs on a thread. None: there is no file.
        """
        self.config = config
        self._in_effect = InEffect(digest_of(config), _now_us())
        self._named: Sequence[str] = config.store.data_directories
        """The data directories of the file, as the newest reload has seen it."""
        self._read = read
        self._take: Callable[[StoreConfig], None] | None = None
        self._directories: Callable[[], Sequence[str]] = lambda: ()
        self._reading: asyncio.Future[StoreConfig] | None = None
        self._asked = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()

    @property
    def in_effect(self) -> InEffect:
        """Data directories wait for no restart once verbs have made them what the file says."""
        found = self._in_effect
        if _DIRECTORIES not in found.waiting or not self._uses(self._named):
            return found
        waiting = tuple(one for one in found.waiting if one != _DIRECTORIES)
        return InEffect(found.digest, found.since_us, waiting)

    def attach(
        self,
        take: Callable[[StoreConfig], None],
        directories: Callable[[], Sequence[str]] = lambda: (),
    ) -> None:
        """The store serves. `take` brings a configuration to its parts, and raises nothing.
        `directories`: the data directories in use, which verbs change (`DirectoryChanges`).
        """
        self._take = take
        self._directories = directories

    def ask(self) -> None:
        """Reload soon; for signals."""
        self._asked.set()

    async def run(self) -> None:
        """Reload whenever somebody has asked, for ever. What is refused is in the log."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            try:
                await self.reload()
            except (InvalidArgument, NotReady, VerbRefused):
                continue

    async def reload(self, *, dry_run: bool = False) -> Reloaded:
        """Take up what can be, and say what differed; `dry_run`: only say it.

        Raises InvalidArgument (ConfigError) for a wrong file, NotReady before the store serves,
        VerbRefused without a file.
        """
        if self._read is None:
            raise VerbRefused("this store was not started from a file")
        if self._take is None:
            raise NotReady("the store is starting")
        async with self._one_at_a_time:
            try:
                read = await self._read_file()
                _check_same_store(self.config, read)
                self._follow_directories(read)
                used = with_reloaded(self.config, read)
                configuration.check(used)
            except InvalidArgument as error:
                if not dry_run:
                    emit(logger, Event.CONFIG_REFUSED, reason=error.message)
                raise
            found = _sorted(changed(self.config, read))
            if not dry_run:
                self._take(used)
                self._named = read.store.data_directories
                self._used(used, found)
            return found

    async def _read_file(self) -> StoreConfig:
        """What the file says now. Raises InvalidArgument."""
        if self._reading is not None and not self._reading.done():
            raise InvalidArgument("the files of the reload before this one are still being read")
        self._reading = apart(self._checked, "reload")
        done, _ = await asyncio.wait([self._reading], timeout=bounds.RELOAD_READ_S)
        if not done:
            raise InvalidArgument(
                f"reading the configuration takes longer than {bounds.RELOAD_READ_S:g} s:"
                " does a file system not answer?"
            )
        return self._reading.result()

    def _follow_directories(self, read: StoreConfig) -> None:
        """Verbs may have made the data directories what the file says: then no restart is due."""
        named = read.store.data_directories
        if self._uses(named):
            store = msgspec.structs.replace(self.config.store, data_directories=named)
            self.config = msgspec.structs.replace(self.config, store=store)

    def _uses(self, named: Sequence[str]) -> bool:
        """Whether these are the data directories in use."""
        used = self._directories()
        return sorted(map(os.path.abspath, named)) == sorted(map(os.path.abspath, used))

    def _checked(self) -> StoreConfig:
        assert self._read is not None  # asked before
        try:
            return self._read()
        except InvalidArgument:
            raise
        except Exception as error:  # a store that runs does not end for what its file says
            raise InvalidArgument(f"cannot read the configuration: {error!r}") from error

    def _used(self, config: StoreConfig, found: Reloaded) -> None:
        if found.taken_up:
            self._in_effect = InEffect(digest_of(config), _now_us(), found.needs_restart)
        else:
            before = self._in_effect
            self._in_effect = InEffect(before.digest, before.since_us, found.needs_restart)
        self.config = config
        emit(
            logger,
            Event.CONFIG_RELOADED,
            digest=self._in_effect.digest,
            taken_up=", ".join(found.taken_up) or "nothing",
            needs_restart=", ".join(found.needs_restart) or "nothing",
            first_start=", ".join(found.first_start) or "nothing",
        )


def digest_of(config: StoreConfig) -> str:
    """A short name of a configuration: stores with the same settings, paths included, have the same
    one.
    """
    return hashlib.sha256(_encoder.encode(config)).hexdigest()[:_DIGEST_CHARACTERS]


def _check_same_store(used: StoreConfig, read: StoreConfig) -> None:
    """INV-RELOAD-3. Raises ConfigError."""
    for name in ("cluster_id", "store_id"):
        mine, others = getattr(used.store, name), getattr(read.store, name)
        if mine != others:
            raise ConfigError(
                f"store.{name}",
                f"the file is that of {others!r}, and this is {mine!r}: nothing of it is taken up",
            )


def _sorted(settings: list[str]) -> Reloaded:
    by: Mapping[Effect, list[str]] = {effect: [] for effect in Effect}
    for setting in settings:
        by[EFFECTS[setting]].append(setting)
    return Reloaded(*(tuple(by[effect]) for effect in Effect))


def _now_us() -> int:
    return time.time_ns() // 1000
