"""settings: the configuration of a store in the terms of the NodeHost and what lies below it."""

from __future__ import annotations

from logservice.config import StoreConfig
from logservice.hakeeper.commands.proposals import Joining
from logservice.ids import ClusterId, StoreId
from logservice.logdb.options import LogDbOptions
from logservice.nodehost.agent.bootstrap import InitialMember
from logservice.nodehost.agent.hakeeper_ticks import FirstConfiguration
from logservice.nodehost.assembly.store_parts import StoreSettings
from logservice.nodehost.options import NodeHostOptions
from logservice.sealing_keys import Keys


def settings_of(config: StoreConfig, keys: Keys | None = None) -> StoreSettings:
    """What the configuration says about storage, consensus and the cluster's beginning. `keys`:
    what entries are encrypted with.
    """
    return StoreSettings(
        cluster_id=ClusterId(config.store.cluster_id),
        store_id=StoreId(config.store.store_id),
        data_directories=config.store.data_directories,
        members=[
            InitialMember(StoreId(member.store_id), member.peer_address)
            for member in config.bootstrap.hakeeper_members
        ],
        first=FirstConfiguration(
            ClusterId(config.store.cluster_id),
            config.bootstrap.log_shards,
            config.bootstrap.replicas,
            config.hakeeper.store_timeout_s,
            Joining(config.hakeeper.joining),
        ),
        options=NodeHostOptions(
            tick_ms=config.raft.tick_ms,
            heartbeat_ticks=config.raft.heartbeat_every_ticks,
            election_ticks=config.raft.election_ticks,
            quiesce_ticks=config.raft.quiesce_ticks,
            lease_read=config.raft.lease_read,
            catch_up_bytes_per_s=config.limits.catch_up_bytes_per_s,
            tail_read_bytes_per_s=config.limits.tail_read_bytes_per_s,
            catch_up_read_bytes_per_s=config.limits.catch_up_read_bytes_per_s,
            unwritten_bytes_max=config.limits.unwritten_bytes_max,
            store_proposal_bytes_max=config.limits.proposal_bytes_max,
        ),
        logdb=LogDbOptions(
            segment_bytes=config.storage.segment_bytes,
            cached_bytes=config.storage.cached_bytes,
            ballast_bytes=config.storage.ballast_bytes,
            reserve_bytes=config.storage.reserve_bytes,
        ),
        keys=keys,
        exports_max=config.truncation.exports_max,
        scrub_interval_s=config.storage.scrub_interval_s,
        scrub_bytes_per_s=config.storage.scrub_bytes_per_s,
        compare_interval_s=config.storage.compare_interval_s,
        hakeeper_tick_s=config.hakeeper.tick_ms / 1000,
        heartbeat_interval_s=config.hakeeper.heartbeat_interval_s,
    )
