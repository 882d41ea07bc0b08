"""takers: a configuration that was read again reaches the parts of the store."""

from __future__ import annotations

from logservice.config import StoreConfig
from logservice.nodehost.assembly.store_parts import StoreParts
from logservice.server.client_port import ClientPort
from logservice.server.directory_company import DirectoryCompany
from logservice.server.storage_keys import StorageKeys
from logservice.server.tls.store_tls import StoreTls


def take(
    config: StoreConfig,
    port: ClientPort,
    parts: StoreParts,
    company: DirectoryCompany,
    tls: StoreTls | None,
    keys: StorageKeys | None,
) -> None:
    """Tell each part its settings, changed or not: what is as before changes nothing. Of `config`
    only what `effects` calls RELOAD may differ from before.
    """
    port.configure(config)
    limits, storage = config.limits, config.storage
    parts.configure(storage.scrub_interval_s, storage.scrub_bytes_per_s, storage.compare_interval_s)
    parts.host.catch_up.configure(limits.catch_up_bytes_per_s)
    parts.host.reads.configure(limits.tail_read_bytes_per_s, limits.catch_up_read_bytes_per_s)
    company.visit_every(config.truncation.interval_s)
    if tls is not None:
        tls.looks.change(config.tls.reload_interval_s)
    if keys is not None:
        keys.looks.change(storage.keys_interval_s)
