"""A store for tests, put together by the builder of the product (`StoreParts`).

A test chooses the seams: directories, disks, network, state machines. Everything between them is
wired as in a real store. HAKeeper's part is there and does nothing until a test runs it.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

from logservice.clock import Clock, SystemClock
from logservice.ids import ClusterId, ShardId, StoreId
from logservice.logdb.io.posix_vfs import PosixVfs
from logservice.logdb.options import LogDbOptions
from logservice.nodehost.agent.bootstrap import InitialMember
from logservice.nodehost.agent.hakeeper_ticks import FirstConfiguration
from logservice.nodehost.assembly.store_directory import DiskSeams
from logservice.nodehost.assembly.store_parts import (
    StoreParts,
    StoreSeams,
    StoreSettings,
    state_machine_for,
)
from logservice.nodehost.options import NodeHostOptions
from logservice.nodehost.transport.seam import PeerIdentity, Transport
from logservice.state_machine import StateMachine

CLUSTER = ClusterId("test-cluster")
SEGMENT_BYTES = 1 << 20


def assemble(
    store_id: StoreId,
    directories: Sequence[Path | str],
    make_transport: Callable[[PeerIdentity], Transport],
    *,
    options: NodeHostOptions,
    on_fatal: Callable[[BaseException], None],
    rng: random.Random | None = None,
    cluster_id: ClusterId = CLUSTER,
    disk: Callable[[str], DiskSeams] = lambda _: DiskSeams.on_files(PosixVfs()),
    logdb: LogDbOptions | None = None,
    state_machines: Callable[[ShardId], StateMachine] = state_machine_for,
    draw_id: Callable[[], int] = lambda: secrets.randbits(63),
    first: FirstConfiguration | None = None,
    members: Sequence[InitialMember] = (),
    heartbeat_interval_s: float = 1.0,
    hakeeper_tick_s: float = 1.0,
    clock: Clock | None = None,
) -> StoreParts:
    """The parts of one store, which serves nothing before `start`."""
    settings = StoreSettings(
        cluster_id,
        store_id,
        [str(path) for path in directories],
        members,
        first or FirstConfiguration(cluster_id, 0, 3, 1.0),
        options=options,
        logdb=logdb or LogDbOptions(segment_bytes=SEGMENT_BYTES, ballast_bytes=0),
        heartbeat_interval_s=heartbeat_interval_s,
        hakeeper_tick_s=hakeeper_tick_s,
    )
    seams = StoreSeams(
        disk=disk,
        clock=clock or SystemClock(),
        make_transport=make_transport,
        draw_id=draw_id,
        rng=rng or random.Random(),
        on_fatal=on_fatal,
        state_machines=state_machines,
    )
    return StoreParts(settings, seams)
