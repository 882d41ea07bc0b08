"""AccessCalls: who may do what, as HAKeeper keeps it, and when a change is in force everywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from logservice_wire.errors import NotReady
from logservice_wire.rpcs import CHANGE_ACCESS, GET_ACCESS_LIST
from logservice_wire.v1 import hakeeper_pb2

from logservice_client.arguments import message, seconds
from logservice_client.caller import Caller
from logservice_client.pacing import Backoff, Deadline


class AccessCalls:
    """A part of `HakeeperClient`."""

    def __init__(self, caller: Caller) -> None:
        """Use the client's connections."""
        self._caller = caller

    async def access_list(self, *, timeout: float | None = None) -> hakeeper_pb2.AccessList:
        """Who may do what."""
        request = hakeeper_pb2.GetAccessListRequest()
        return await self._caller.call(None, GET_ACCESS_LIST, request, timeout)

    async def change_access(
        self,
        identity: str,
        scope: str,
        *,
        grant: Sequence[str] = (),
        revoke: Sequence[str] = (),
        timeout: float | None = None,
    ) -> int:
        """Give roles to `identity` over `scope`, or take them; returns the list's new version.

        In force on every store within two heartbeats (`wait_access`). Raises InvalidArgument,
        PermissionDenied.
        """
        request = message(
            hakeeper_pb2.ChangeAccessRequest,
            identity=identity,
            scope=scope,
            grant=grant,
            revoke=revoke,
        )
        return (await self._caller.call(None, CHANGE_ACCESS, request, timeout)).version

    async def change_denial(
        self,
        identity: str,
        scope: str,
        *,
        deny: Sequence[str] = (),
        undeny: Sequence[str] = (),
        timeout: float | None = None,
    ) -> int:
        """Deny roles over `scope` to `identity`, which may be ``.../client/<prefix>*``, whatever is
        granted; or no more. "all" are all roles. Returns the access list's new version.

        In force as a grant is. Raises InvalidArgument, PermissionDenied, NotReady{cluster_version}
        before cluster version 2.
        """
        request = message(
            hakeeper_pb2.ChangeAccessRequest,
            identity=identity,
            scope=scope,
            deny=deny,
            undeny=undeny,
        )
        return (await self._caller.call(None, CHANGE_ACCESS, request, timeout)).version

    async def wait_access(
        self, version: int, *, timeout: float | None = None
    ) -> hakeeper_pb2.AccessList:
        """Wait until that version of the access list, or a later one, is in force on every store,
        or a store that does not have it lets nobody in any more; return the list then.

        Raises NotReady{stores} when that is not so in time, or the cluster is at version 1, where
        stores do not say it.
        """
        deadline = Deadline(seconds(timeout))
        backoff = Backoff()
        while True:
            found = await self.access_list(timeout=deadline.left_s())
            late = late_stores(found, version)
            if found.stores and not late:
                return found
            names = ",".join(late)
            waiting = NotReady(f"not in force yet on {names or 'all stores'}", stores=names)
            pause_s = backoff.next_s(waiting)
            if deadline.remaining_s() <= pause_s:
                raise waiting
            await asyncio.sleep(pause_s)


def late_stores(found: hakeeper_pb2.AccessList, version: int) -> list[str]:
    """The stores that may still let somebody in by an older access list than that version."""
    return [
        one.store_id
        for one in found.stores
        if one.version < version and one.heard_ms <= found.age_max_ms
    ]
