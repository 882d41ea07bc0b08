"""Soft bounds of `server/`: calls, and the admin port."""

from __future__ import annotations

from typing import Final

from logservice.bounds.hard import BLOCK_BYTES_MAX
from logservice.bounds.nodehost import READ_BYTES_MAX

# --- calls ----------------------------------------------------------------------------------------

RPC_TIMEOUT_DEFAULT_S: Final = 10.0
"""Deadline of a call that brings none: ten elections, so that a failover fits into it."""

RPC_TIMEOUT_MAX_S: Final = 60.0
"""Longer deadlines are cut to this: a request that waits holds memory in every store it passed."""

CONCURRENT_RPCS_MAX: Final = 20_000
"""Calls a store serves at a time; gRPC refuses more with RESOURCE_EXHAUSTED."""

GRPC_MESSAGE_BYTES_MAX: Final = READ_BYTES_MAX + BLOCK_BYTES_MAX + 1024 * 1024
"""A Read answer of the largest size, overshot by its last block, plus fields around the blocks."""

STREAM_MESSAGE_BYTES_GOAL: Final = 1024 * 1024
"""Follow's answers: large enough that a call's cost vanishes, small enough to be fair."""

# --- the admin port -------------------------------------------------------------------------------

READY_REASONS_MAX: Final = 100
"""Reasons in one answer: with a thousand shards without a leader the first hundred say it all."""

ADMIN_THREADS: Final = 4
"""Requests of the admin port answered at once; each waits for the loop most of its time."""

ADMIN_CONNECTIONS_MAX: Final = 64
"""Connections to the admin port: Prometheus, a few browsers, probes."""

ADMIN_REQUEST_BYTES_MAX: Final = 16 * 1024
"""Header and body of a request to the admin port; nothing there takes a body."""

ADMIN_LOOP_WAIT_S: Final = 5.0
"""How long a request of the admin port waits for the event loop before it says that it is stuck."""

ADMIN_STATUS_AGE_S: Final = 0.5
"""A status this old is given out again: several pages and scrapes at once cost one."""

ADMIN_CLUSTER_AGE_S: Final = 1.0
"""The same for the picture of the whole cluster, which asks every store."""

ADMIN_PEER_WAIT_S: Final = 1.5
"""For one store's answer when the picture of the cluster is made; below the page's patience."""

ADMIN_STORES_AT_ONCE: Final = 32
"""Stores asked at the same time for that picture."""

EVENTS_KEPT: Final = 256
"""Newest events of a store that the admin port shows; older ones are in the log."""

EVENTS_PER_STATUS: Final = 50
"""Of them, what travels with a status to other stores."""

METRIC_PINS_MAX: Final = 5
"""Replicas of a data directory that are named as what keeps its oldest segment."""

METRIC_SHARDS_MAX: Final = 2000
"""Shards with series of their own; the others are counted in logservice_shards_without_series."""

SLOW_DURABLE_WRITE_US: Final = 100_000
"""A p99 of durable writes above it is an event: a tenth of the default election timeout."""

HAKEEPER_SILENT_S: Final = 30.0
"""Without an answer of HAKeeper for so long a store says so: thirty heartbeats."""
