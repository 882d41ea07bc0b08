"""Resolver: names of other stores to addresses, without ever waiting for a thread.

A name service that does not answer holds its caller for ten seconds and more, and that cannot be
cancelled. In asyncio's own pool such callers take all threads (each redial leaves another one
behind), so that names which *can* be resolved wait for them, and the process cannot end before they
do. Here every name has at most one lookup under way, in a daemon thread. Whoever asks again
meanwhile waits for the same lookup, and the process ends without it. This file alone decides how
names are looked up.

Numeric addresses need no lookup.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import threading


class Resolver:
    """Of one transport; used on its event loop."""

    def __init__(self) -> None:
        """Nothing is looked up yet."""
        self._under_way: dict[str, asyncio.Future[list[str]]] = {}

    async def addresses(self, host: str) -> list[str]:
        """Numeric addresses in the order of preference. Raises OSError when there are none."""
        with contextlib.suppress(ValueError):
            ipaddress.ip_address(host)
            return [host]
        lookup = self._under_way.get(host)
        if lookup is None:
            lookup = self._begin(host)
        # Who gives up does not take the answer away from the others.
        return await asyncio.shield(lookup)

    def _begin(self, host: str) -> asyncio.Future[list[str]]:
        loop = asyncio.get_running_loop()
        lookup: asyncio.Future[list[str]] = loop.create_future()
        self._under_way[host] = lookup

        def done(found: list[str] | OSError) -> None:
            del self._under_way[host]
            if isinstance(found, OSError):
                lookup.set_exception(found)
                lookup.exception()  # everybody may have given up
            else:
                lookup.set_result(found)

        def look_up() -> None:
            answer = _look_up(host)
            with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits
                loop.call_soon_threadsafe(done, answer)

        threading.Thread(target=look_up, name=f"resolve {host}", daemon=True).start()
        return lookup


def _look_up(host: str) -> list[str] | OSError:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        return error
    except UnicodeError as error:  # a label that is too long
        return OSError(f"{host!r} is no host name: {error}")
    return list(dict.fromkeys(str(address[4][0]) for address in found))
