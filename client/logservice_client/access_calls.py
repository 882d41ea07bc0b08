"""AccessCalls: who may do what, as HAKeeper keeps it, and when a change is in force everywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from logservice_wire.errors import NotReady
from logservice_wire.rpcs import CHANGE_ACCESS, GET_ACCESS_LIST, SET_QUOTA
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

    async def set_quota(
        self,
        identity: str = "",
        *,
        requests_per_s: int | None = None,
        bytes_per_s: int | None = None,
        rpcs_max: int | None = None,
        streams_max: int | None = None,
        connections_max: int | None = None,
        address_connections_max: int | None = None,
        clear: Sequence[str] = (),
        timeout: float | None = None,
    ) -> int:
        """Set what `identity`, or every identity, may use of each store; None stays as it is. What
        is named in `clear` is what every identity may use, or as each store is configured. A rate
        of 0 is no limit. Returns the version of the quotas.

        Each store takes it up with its next heartbeat or the one after that. Raises
        InvalidArgument, NotReady{cluster_version} before cluster version 2.
        """
        quota = message(
            hakeeper_pb2.IdentityQuota,
            identity=identity,
            requests_per_s=requests_per_s,
            bytes_per_s=bytes_per_s,
            rpcs_max=rpcs_max,
            streams_max=streams_max,
            connections_max=connections_max,
            address_connections_max=address_connections_max,
        )
        request = message(hakeeper_pb2.SetQuotaRequest, quota=quota, clear=clear)
        return (await self._caller.call(None, SET_QUOTA, request, timeout)).version

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
