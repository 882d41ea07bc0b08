"""Effects: what becomes of each setting when the configuration is read while the store runs.

Theory of operation. A setting is one of three kinds:

    RELOAD       it is taken up at once
    RESTART      it is in force from the next start on
    FIRST_START  it counts when a cluster starts for the first time, and never again

A setting can be taken up if a part of the store reads it again and again, and nothing was laid out
by it at the start: no memory, no file, no port, no timing that other stores count on. Nothing about
who the store is can be. `EFFECTS` is the one list; docs/operations/configuration.md is made from
it.

INV-RELOAD-1: every setting is in the list, and each of the kind RELOAD reaches the part that it is
about.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import structs

from logservice.config import StoreConfig


class Effect(enum.Enum):
    """See the module's text."""

    RELOAD = "reload"
    RESTART = "restart"
    FIRST_START = "first start"


def _settings(section: str, effect: Effect, names: str) -> dict[str, Effect]:
    return {f"{section}.{name}": effect for name in names.split()}


EFFECTS: Final[Mapping[str, Effect]] = {
    **_settings("store", Effect.RESTART, "store_id cluster_id data_directories host"),
    **_settings("store", Effect.RELOAD, "labels"),
    **_settings(
        "listen",
        Effect.RESTART,
        "client peer advertise_client advertise_peer insecure_plaintext",
    ),
    **_settings("bootstrap", Effect.RESTART, "hakeeper_members"),
    **_settings("bootstrap", Effect.FIRST_START, "log_shards replicas"),
    **_settings(
        "raft", Effect.RESTART, "tick_ms heartbeat_ticks election_ticks quiesce_ticks lease_read"
    ),
    **_settings("hakeeper", Effect.FIRST_START, "store_timeout_s joining"),
    **_settings("hakeeper", Effect.RESTART, "tick_ms heartbeat_interval_s"),
    **_settings(
        "storage",
        Effect.RESTART,
        "segment_bytes ballast_bytes reserve_bytes cached_bytes keys_file keys_command",
    ),
    **_settings(
        "storage",
        Effect.RELOAD,
        "scrub_interval_s scrub_bytes_per_s compare_interval_s keys_interval_s",
    ),
    **_settings("truncation", Effect.RELOAD, "interval_s"),
    **_settings("truncation", Effect.RESTART, "exports_max"),
    **_settings(
        "admin", Effect.RESTART, "listen advertise allow_remote tls certificate key authentication"
    ),
    **_settings("logging", Effect.RELOAD, "level"),
    **_settings("logging", Effect.RESTART, "format"),
    **_settings(
        "limits",
        Effect.RELOAD,
        "rpc_timeout_default_s rpc_timeout_max_s read_bytes_default read_bytes_max"
        " identity_rpcs_max identity_streams_max identity_undelivered_bytes_max"
        " identity_connections_max address_connections_max"
        " identity_requests_per_s identity_bytes_per_s"
        " catch_up_bytes_per_s tail_read_bytes_per_s catch_up_read_bytes_per_s"
        " stream_blocks_inflight_max",
    ),
    **_settings(
        "limits",
        Effect.RESTART,
        "concurrent_rpcs_max connections_max"
        " answer_bytes_max identity_answer_bytes_max undelivered_bytes_max memory_bytes_max"
        " proposal_bytes_max unwritten_bytes_max peer_queue_bytes_max peer_request_bytes_max",
    ),
    **_settings("tls", Effect.RELOAD, "reload_interval_s"),
    **_settings(
        "tls",
        Effect.RESTART,
        "trust_domain client_ca certificate key peer_ca peer_certificate peer_key"
        " client_crl peer_crl revocation_strict connection_age_max_s ciphers",
    ),
    **_settings(
        "tokens",
        Effect.RESTART,
        "issuer audience jwks jwks_ca jwks_token_file refresh_interval_s keys_age_max_s"
        " claim name_prefix algorithms leeway_s lifetime_max_s port_offset",
    ),
    **_settings("security", Effect.RELOAD, "admins"),
    **_settings("audit", Effect.RELOAD, "data"),
    **_settings("audit", Effect.RESTART, "directory file_bytes_max files_max identity_bytes_per_s"),
    **_settings("archive", Effect.RESTART, "config"),
    **_settings("tracing", Effect.RESTART, "exporter"),
}


def values(config: StoreConfig) -> Iterator[tuple[str, Any]]:
    """Every setting as ``section.key`` and its value."""
    for section in config.__struct_fields__:
        part = getattr(config, section)
        for key in part.__struct_fields__:
            yield f"{section}.{key}", getattr(part, key)


def changed(before: StoreConfig, after: StoreConfig) -> list[str]:
    """The settings in which two configurations differ, in their order."""
    known = dict(values(before))
    return [setting for setting, value in values(after) if known[setting] != value]


def with_reloaded(used: StoreConfig, read: StoreConfig) -> StoreConfig:
    """`used` with those settings of `read` that are taken up at once."""
    for setting in changed(used, read):
        if EFFECTS[setting] is Effect.RELOAD:
            section, _, key = setting.partition(".")
            value = getattr(getattr(read, section), key)
            part = structs.replace(getattr(used, section), **{key: value})
            used = structs.replace(used, **{section: part})
    return used
