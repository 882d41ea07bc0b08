"""`logctl store`: what one store says about itself, and how it runs: log, configuration, disks."""

from __future__ import annotations

import click
from logservice_wire.rpcs import GET_STORE_STATUS
from logservice_wire.v1 import admin_pb2

from logservice.cli.ctl.client_session import Session, pass_session
from logservice.cli.ctl.direct_call import call_store
from logservice.cli.ctl.log_level import level_fields, level_text, set_log_level
from logservice.cli.ctl.reload import config_fields, reload
from logservice.cli.ctl.store_address import address_of
from logservice.cli.ctl.store_argument import store_argument
from logservice.cli.ctl.store_directory import VERBS, change_directory
from logservice.cli.shell.duration import duration
from logservice.cli.shell.output import output_option, say, show_fields, show_rows
from logservice.log_levels import LOG_LEVELS

_WHAT = click.Choice(["log-level", "reload", "directory"])


@click.command()
@store_argument("store_id")
@click.argument("what", metavar="[reload|log-level|directory", type=_WHAT, required=False)
@click.argument("word", metavar="[LEVEL|VERB", required=False)
@click.argument("path", metavar="[PATH]]]", required=False)
@click.option(
    "--for",
    "for_s",
    type=duration,
    help="Back to the configured level after this time; else when the store restarts.",
)
@click.option("--dry-run", is_flag=True, help="With reload: say what it would do, and do nothing.")
@click.option("--force", is_flag=True, help="Drain although it is refused; it is audited.")
@click.option(
    "--wait",
    "wait_s",
    type=duration,
    help="Wait so long at most for the drain, and show how far it is.",
)
@output_option
@pass_session
def store(
    session: Session,
    store_id: str,
    what: str | None,
    word: str | None,
    path: str | None,
    for_s: float | None,
    dry_run: bool,
    force: bool,
    wait_s: float | None,
    form: str,
) -> None:
    """Show what one store says, or change how it runs.

    STORE is its name, or its client address, host:port, which works also when HAKeeper cannot say
    where it is. Its data directories, its replicas and the parts of its memory budget are shown,
    too: how much is in use, and how often somebody had to pay because a part was full.

    With log-level only the level of its log is shown. With a LEVEL, which is debug, info, warning
    or error, it writes from that level up: until it restarts, or until the time of --for is over.

    With reload the store reads its configuration again. What was taken up is printed, and what
    needs a restart; a wrong file is refused as a whole.

    With directory a VERB lets a data directory, which PATH names, come or go while the store runs.
    add: use it; the store's configuration file has to name it by then. drain: its leaders and
    replicas go to other stores, one after the other. undrain: what has not left yet stays. remove:
    let go of it, once it is drained and empty. For add and remove a minute is waited at least.
    """
    if dry_run and what != "reload":
        raise click.UsageError("--dry-run goes with reload")
    if what == "directory":
        if word not in VERBS or path is None:
            raise click.UsageError(f"directory takes {', '.join(VERBS)} and a PATH")
        if for_s is not None or ((force or wait_s is not None) and word != "drain"):
            raise click.UsageError("--force and --wait go with drain, --for with a LEVEL")
        show_fields(form, change_directory(session, store_id, word, path, force, wait_s or 0.0))
        return
    if path is not None or force or wait_s is not None:
        raise click.UsageError("PATH, --force and --wait go with directory")
    if what == "reload" and word is not None:
        raise click.UsageError("reload has no LEVEL")
    level = checked_level(word) if word is not None else None
    if for_s is not None and level is None:
        raise click.UsageError("--for goes with a LEVEL")
    address = address_of(session, store_id)
    if what == "reload":
        show_fields(form, reload(session, address, dry_run=dry_run))
        return
    if level is not None:
        show_fields(form, set_log_level(session, address, level, for_s or 0.0))
        return
    found = call_store(
        address, GET_STORE_STATUS, admin_pb2.GetStoreStatusRequest(), session.timeout_s, session.tls
    )
    if what is not None:
        show_fields(form, level_fields(found.log_level))
        return
    _show(form, found)


def checked_level(word: str) -> str:
    """The word, which is a level. Raises UsageError."""
    if word not in LOG_LEVELS:
        raise click.UsageError(f"a LEVEL is one of {', '.join(LOG_LEVELS)}")
    return word


def _show(form: str, found: admin_pb2.StoreStatus) -> None:
    if form == "json":
        from google.protobuf.json_format import MessageToJson

        say(MessageToJson(found, preserving_proto_field_name=True, indent=None))
        return
    show_fields(
        form,
        {
            "store": found.store_id,
            "cluster": found.cluster_id,
            "version": found.version,
            "uptime_s": found.uptime_ms // 1000,
            "segment_bytes": found.segment_bytes,
            "segment_files": found.segment_files,
            "durable_writes": found.durable_writes,
            "durable_write_p50_us": found.durable_write_p50_us,
            "durable_write_p99_us": found.durable_write_p99_us,
            "truncation": dict(found.truncation_counts),
            "log_level": level_text(found.log_level),
            **config_fields(found.config),
            "waiting_for_restart": list(found.config.waiting),
        },
    )
    rows = [
        {
            "directory": one.path,
            "incarnation": one.incarnation,
            "replicas": one.replicas,
            "used_bytes": one.used_bytes,
            "free_bytes": one.free_bytes,
            "full": one.full,
            "failed": one.failed,
        }
        for one in found.directories
    ]
    disk = ("directory", "replicas", "used_bytes", "free_bytes")
    show_rows(form, rows, "data directories", main=disk, if_any=("full", "failed"))
    rows = [
        {
            "memory": one.part,
            "used_bytes": one.used_bytes,
            "limit_bytes": one.limit_bytes,
            "refused": one.refused,
            "key": f"limits.{one.key}" if one.key else "",
        }
        for one in found.memory
    ]
    say()
    show_rows(form, rows, "memory")
    paths = {one.incarnation: one.path for one in found.directories}
    rows = [
        {
            "shard": item.shard_id,
            "replica": item.replica_id,
            "role": item.role,
            "term": item.term,
            "applied_index": item.applied_index,
            "last_index": item.last_index,
            "first_lsn": item.first_lsn,
            "applied_lsn": item.applied_lsn,
            "truncated_lsn": item.truncated_lsn,
            "exports": item.exported_snapshots,
            "directory": paths.get(item.incarnation, ""),
            "halted": item.halted,
        }
        for item in found.replicas
    ]
    main = ("shard", "replica", "role", "first_lsn", "applied_lsn", "truncated_lsn")
    show_rows(form, rows, "replicas", main=main, if_any=("halted",))
