"""reload: `logctl store STORE reload`: a running store reads its configuration again."""

from __future__ import annotations

from logservice_wire.rpcs import RELOAD_CONFIG
from logservice_wire.v1 import admin_pb2

from logservice.cli.ctl.client_session import Session
from logservice.cli.ctl.direct_call import call_store
from logservice.cli.shell.moment import moment_text
from logservice.cli.shell.output import Row


def reload(session: Session, address: str, *, dry_run: bool) -> Row:
    """Let it read; what differed, and what is in effect now."""
    request = admin_pb2.ReloadConfigRequest(dry_run=dry_run)
    found = call_store(address, RELOAD_CONFIG, request, session.timeout_s, session.tls)
    return {
        "would_take_up" if dry_run else "taken_up": list(found.taken_up),
        "needs_restart": list(found.needs_restart),
        "first_start_only": list(found.first_start),
        **config_fields(found.config),
    }


def config_fields(found: admin_pb2.ConfigInEffect) -> Row:
    """The configuration in effect. An older store says nothing of it."""
    return {
        "config": found.digest or None,
        "config_since": moment_text(found.since_us) if found.since_us else None,
    }
