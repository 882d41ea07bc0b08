"""issuer_keys: the public keys of the tokens' issuer, followed as the issuer changes them.

Theory of operation. The key set is read every `refresh_interval_s`. A set that is usable as a whole
replaces the one in use, and a key that it no longer has verifies nothing from then on: also not
tokens that were accepted before, since whoever remembers one remembers the set it was checked by
(`current` returns another object when the keys have changed). A set that cannot be had or is not
usable changes nothing and is an alarm. The keys in use stay so until they are `keys_age_max_s` old,
counted from the last time that the issuer said them; then there are none.

A token may name a key that the issuer has begun to use since the last look. Then the issuer is
asked again, at most once in JWKS_ASK_AGAIN_S. Until the answer is there, it cannot be told whether
the token is good.

A store starts although its issuer does not answer: clients with certificates do not need it. A file
has to be right at the start, as every other file of the configuration.

INV-TOKEN-3: keys that the issuer has not confirmed for `keys_age_max_s` verify nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from logservice_wire.boottime import boottime_s
from logservice_wire.errors import InvalidArgument

from logservice import bounds
from logservice.config import ConfigError, TokensSection
from logservice.events import Event, emit
from logservice.server.tokens.fetching import Fetcher, KeySource
from logservice.server.tokens.jwks import IssuerKey, Keys, read_keys

_NONE: Final[Mapping[str, IssuerKey]] = MappingProxyType({})

logger = logging.getLogger(__name__)


class IssuerKeys:
    """The keys of one issuer. Everything is called on the event loop."""

    def __init__(self, section: TokensSection, clock_s: Callable[[], float] = boottime_s) -> None:
        """Nothing is read yet. `clock_s` goes on while the host is suspended."""
        self._section = section
        self._clock_s = clock_s
        source = KeySource(section.jwks, section.jwks_ca, section.jwks_token_file)
        self._remote = source.remote
        self._fetcher = Fetcher(source)
        self._keys: Keys = _NONE
        self._confirmed_s: float | None = None
        self._asked_s = float("-inf")
        self._wanted = asyncio.Event()
        self._asking = False
        self._failure = ""
        self.failures = 0
        """How many looks found no usable set."""

    async def first(self) -> None:
        """Read a file for the first time; a URL has time until `run`. Raises ConfigError."""
        if self._remote:
            return
        try:
            await self._read()
        except InvalidArgument as error:
            raise ConfigError("tokens.jwks", error.message) from error

    async def run(self) -> None:
        """Follow the keys for ever."""
        if self._confirmed_s is None:
            await self.poll()
        while True:
            pause_s = self._section.refresh_interval_s
            if self._failure:
                pause_s = min(pause_s, bounds.JWKS_RETRY_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._wanted.wait()
            await self.poll()

    async def poll(self) -> None:
        """Look once."""
        # What is wanted from here on wants another look: this one may bring what was there before.
        self._wanted.clear()
        self._asking = True
        try:
            await self._read()
        except InvalidArgument as error:
            self.failures += 1
            if error.message != self._failure:
                emit(logger, Event.TOKEN_KEYS_REFUSED, reason=error.message)
            self._failure = error.message
        else:
            self._failure = ""
        finally:
            self._asking = False

    def current(self) -> Keys:
        """The keys in use; none when they are too old. Another object when they have changed."""
        return _NONE if self._too_old() else self._keys

    def unknown(self, kid: str) -> bool:
        """A token names a key that is not in use. Whether that may yet change: the issuer is being
        asked, or is asked now.
        """
        if not self._keys or self._too_old():
            return True
        now_s = self._clock_s()
        if not self._wanted.is_set() and now_s - self._asked_s >= bounds.JWKS_ASK_AGAIN_S:
            self._asked_s = now_s
            self._wanted.set()
        return self._asking or self._wanted.is_set()

    @property
    def count(self) -> int:
        """How many keys are in use."""
        return len(self.current())

    @property
    def age_s(self) -> float:
        """Seconds since the issuer confirmed the keys; infinite before it did."""
        return float("inf") if self._confirmed_s is None else self._clock_s() - self._confirmed_s

    def alarms(self) -> list[str]:
        """What a person must look at."""
        if not self._failure:
            return []
        if self._confirmed_s is None:
            return [f"tokens: no keys of the issuer, so no token is accepted: {self._failure}"]
        state = "are too old and not used any more" if self._too_old() else "stay in use"
        return [
            f"tokens: the keys of the issuer cannot be read; those of {self.age_s:.0f} s ago"
            f" {state}: {self._failure}"
        ]

    def _too_old(self) -> bool:
        return self.age_s >= self._section.keys_age_max_s

    async def _read(self) -> None:
        asked_s = self._clock_s()
        found = read_keys(await self._fetcher.read(), self._section.algorithms)
        self._confirmed_s = asked_s
        if found != self._keys:
            self._keys = found
            emit(logger, Event.TOKEN_KEYS_REPLACED, keys=" ".join(sorted(found)))
