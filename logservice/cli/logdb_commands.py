"""`logservice logdb`: look at a data directory offline, and rebuild its derived index.

Nothing here changes a segment. While a store has the directory open the commands refuse, unless
--live says that a picture of a moving log is good enough.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click

from logservice.cli import exit_codes
from logservice.cli.output import output_option, show_fields, show_rows
from logservice.logdb import offline
from logservice.logdb.posix_vfs import PosixVfs

_directory = click.argument(
    "directory", type=click.Path(path_type=Path, exists=True, file_okay=False)
)
_live = click.option("--live", is_flag=True, help="Even while a store has it open.")


@click.group()
def logdb() -> None:
    """Inspect the log storage in a data DIRECTORY offline."""


@logdb.command()
@_directory
@_live
@click.option("--headers-only", is_flag=True, help="Do not read the entries themselves.")
@output_option
def check(directory: Path, live: bool, headers_only: bool, form: str) -> int:
    """Verify every checksum and every chain. Exit code 1 when something is damaged."""
    report = offline.check(PosixVfs(), str(directory), read_entries=not headers_only, live=live)
    _show_check(form, report)
    return exit_codes.OK if report.ok else exit_codes.NEGATIVE


@logdb.command()
@_directory
@_live
@output_option
def dump(directory: Path, live: bool, form: str) -> None:
    """Every run of records of every segment, damaged places included, in the order on disk."""
    for record in offline.dump(PosixVfs(), str(directory), live=live):
        if form == "json":
            click.echo(json.dumps(dataclasses.asdict(record)))
            continue
        where = f"{record.segment:>6}:{record.offset:<10} group {record.group:<8}"
        text = f"{record.kind:<12} shard {record.shard} replica {record.replica}"
        if record.last_index:
            text += f" {record.first_index}..{record.last_index}"
            if record.next_lsn > record.first_lsn:
                text += f" LSN {record.first_lsn}..{record.next_lsn - 1}"
        elif record.first_index:
            text += f" at {record.first_index}"
        rewrite = " (copy)" if record.rewrite else ""
        click.echo(f"{where} {text}{rewrite} {record.detail}".rstrip())


@logdb.command()
@_directory
@_live
@output_option
def stats(directory: Path, live: bool, form: str) -> None:
    """Per segment: used and live bytes, and which replicas keep it."""
    rows = [
        {
            "segment": found.name,
            "size": found.size,
            "used_bytes": found.used_bytes,
            "live_bytes": found.live_bytes,
            "groups": found.groups,
            "pinned_by": [f"{shard}/{replica}" for shard, replica in found.pinned_by],
        }
        for found in offline.statistics(PosixVfs(), str(directory), live=live)
    ]
    show_rows(form, rows, "segments")


@logdb.command("rebuild-index")
@_directory
@output_option
def rebuild_index(directory: Path, form: str) -> int:
    """Throw the derived index away and write it anew from the segments."""
    from logservice.logdb.leveldb_kv import LevelDbEngine

    vfs = PosixVfs()
    report = offline.rebuild_index(vfs, str(directory), LevelDbEngine(vfs))
    _show_check(form, report)
    return exit_codes.OK if report.ok else exit_codes.NEGATIVE


def _show_check(form: str, report: offline.CheckReport) -> None:
    fields: dict[str, object] = {
        "store": report.identity.store_id,
        "cluster": report.identity.cluster_id,
        "incarnation": report.identity.incarnation,
        "ok": report.ok,
        "segments": report.segments,
        "bytes": report.bytes,
        "groups": report.groups,
        "entries": report.entries,
        "torn_bytes": report.torn_bytes,
        "damages": list(report.damages),
        "harmless": list(report.harmless),
        "verdicts": list(report.verdicts),
    }
    replicas = [dataclasses.asdict(replica) for replica in report.replicas]
    if form == "json":
        click.echo(json.dumps({**fields, "replicas": replicas}))
        return
    show_fields(form, fields)
    shown = ("shard", "replica", "term", "commit", "first_index", "last_index", "first_lsn",
             "next_lsn", "live_bytes", "removed", "faulty")  # fmt: skip
    show_rows(form, [{name: row[name] for name in shown} for row in replicas], "replicas")
