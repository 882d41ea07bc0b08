"""deadlines: a typed answer before the caller's own deadline.

Theory of operation. When a client's deadline passes, gRPC answers in the store's place with
DEADLINE_EXCEEDED and no ErrorInfo, and nobody knows what became of the request. So a request gets a
little less time than its caller has. When that time is over, the NodeHost decides about the request
at once instead of at its next look at deadlines: NOT_READY when nothing was proposed (no leader
took it), an unknown outcome when something was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from logservice import bounds
from logservice.config import LimitsSection
from logservice.ids import ShardId
from logservice.server.edge.errors import Context

_AFTER_S: Final = 0.002
"""How much later the request's own deadline is than the timer, which was set before it."""


def timeout_s(context: Context, limits: LimitsSection) -> float:
    """Seconds this call may take from now on: its caller's, less the margin, or the default.

    Without a deadline a proposal on a shard that lost its quorum would be held for ever.
    """
    remaining: float | None = context.time_remaining()
    if remaining is None:
        return limits.rpc_timeout_default_s
    margin_s = min(bounds.DEADLINE_MARGIN_S, remaining * bounds.DEADLINE_MARGIN_SHARE)
    return min(remaining - margin_s, limits.rpc_timeout_max_s)


@contextmanager
def in_time(
    context: Context, limits: LimitsSection, expire: Callable[[ShardId], None], shard: ShardId
) -> Iterator[float]:
    """Whatever is asked of `shard` inside is answered within the seconds that this yields.

    `expire`: the NodeHost's method.
    """
    limit_s = timeout_s(context, limits)
    timer = asyncio.get_running_loop().call_later(limit_s + _AFTER_S, expire, shard)
    try:
        yield limit_s
    finally:
        timer.cancel()
