"""NumberCalls: what HAKeeper has given out only once, and how another cluster skips it."""

from __future__ import annotations

from typing import Final

from logservice_wire.rpcs import GET_GIVEN_OUT, SKIP_NUMBERS
from logservice_wire.v1 import hakeeper_pb2

from logservice_client.caller import Caller

_RANGES_AT_ONCE: Final = 2048
"""Ranges of ids of deleted logs in one request: less than a request that is no append may have."""


class NumberCalls:
    """A part of `HakeeperClient`."""

    _caller: Caller

    async def given_out(self, *, timeout: float | None = None) -> hakeeper_pb2.GivenOut:
        """What was given out so far. Raises NotReady{cluster_version} before cluster version 2."""
        request = hakeeper_pb2.GetGivenOutRequest()
        return await self._caller.call(None, GET_GIVEN_OUT, request, timeout)

    async def skip_numbers(
        self, given_out: hakeeper_pb2.GivenOut, *, timeout: float | None = None
    ) -> None:
        """Give nothing of that out, nor what may have been given out soon after it. To skip the
        same numbers again changes nothing.

        `timeout` is of each request; there are several when many logs were deleted. Raises
        InvalidArgument, Busy when there is no room for the ids of deleted logs, NotReady
        {cluster_version} before cluster version 2.
        """
        ranges = list(given_out.deleted)
        for at in range(0, len(ranges) or 1, _RANGES_AT_ONCE):
            part = hakeeper_pb2.GivenOut()
            part.CopyFrom(given_out)
            del part.deleted[:]
            part.deleted.extend(ranges[at : at + _RANGES_AT_ONCE])
            request = hakeeper_pb2.SkipNumbersRequest(given_out=part)
            await self._caller.call(None, SKIP_NUMBERS, request, timeout)
