"""storage_keys: the keys that a store's segments are encrypted with, followed as they change.

Theory of operation. The ring is read before anything of a data directory is opened, and again every
`keys_interval_s`, on a thread: a command may take its time. A ring that differs from the one in use
replaces it in all data directories or in none. One that cannot be read, or that lacks a key which
segments need, changes nothing and is an alarm until it is right: so a rotation is an edit of a
file, and a mistake in it stops nothing before the next start.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from logservice_wire.errors import InvalidArgument

from logservice.events import Event, emit
from logservice.pause import Interval
from logservice.sealing_keys import Keys

logger = logging.getLogger(__name__)


class KeyUsers(Protocol):
    """Whose segments are encrypted: `StoreParts`."""

    def use_keys(self, keys: Keys) -> None:
        """Another ring from now on. Raises KeysMissing, and changes nothing."""
        ...

    @property
    def encrypts(self) -> bool:
        """Whether what is written now is encrypted, in every data directory."""
        ...


class StorageKeys:
    """The ring of one store."""

    def __init__(self, read: Callable[[], Keys], interval_s: float) -> None:
        """Nothing is read yet."""
        self._read = read
        self.looks = Interval(interval_s)
        """Between two looks for another ring."""
        self._used: Keys | None = None
        self._failure = ""
        self._users: KeyUsers | None = None

    async def first(self) -> Keys:
        """The ring to start with. Raises InvalidArgument."""
        self._used = await asyncio.to_thread(self._read)
        return self._used

    def attach(self, users: KeyUsers) -> None:
        """Whom to tell of other rings; they have the first one."""
        self._users = users

    async def run(self) -> None:
        """Look for another ring for ever."""
        while True:
            await self.looks.wait()
            await self.poll()

    async def poll(self) -> bool:
        """Look once; True when the ring was replaced."""
        assert self._users is not None
        try:
            found = await asyncio.to_thread(self._read)
            if found == self._used:
                self._failure = ""
                return False
            self._users.use_keys(found)
        except InvalidArgument as error:
            if error.message != self._failure:
                emit(logger, Event.KEYS_REFUSED, reason=error.message)
            self._failure = error.message
            return False
        self._used, self._failure = found, ""
        emit(logger, Event.KEYS_REPLACED, key=found.active)
        return True

    def alarms(self) -> list[str]:
        """What a person must look at; empty when all is well."""
        found = [f"storage: the new keys are not used: {self._failure}"] if self._failure else []
        if self._users is not None and not self._users.encrypts:
            found.append(
                "storage: there are keys, and segments are written plain until the cluster version"
                " is raised"
            )
        return found
