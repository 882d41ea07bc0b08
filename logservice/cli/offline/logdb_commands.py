"""`logservice logdb`: look at a data directory offline, and rebuild its derived index.

Nothing here changes a segment. While a store has the directory open the commands refuse, unless
--live says that a view of a changing log is good enough.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import click
from logservice_wire.block import Block
from logservice_wire.errors import CodecMissing, CorruptBlock

from logservice.cli.offline.stored_records import stored_blocks
from logservice.cli.shell import exit_codes
from logservice.cli.shell.keys_option import keys_option
from logservice.cli.shell.output import output_option, record_line, say, show_fields, show_rows
from logservice.logdb.io.posix_vfs import PosixVfs
from logservice.logdb.recovery import offline
from logservice.sealing_keys import Keys

_directory = click.argument(
    "directory", type=click.Path(path_type=Path, exists=True, file_okay=False)
)
_live = click.option("--live", is_flag=True, help="Even while a store has it open.")


@click.group()
def logdb() -> None:
    """Inspect a data directory without its store."""


@logdb.command()
@_directory
@_live
@click.option("--headers-only", is_flag=True, help="Do not read the entries themselves.")
@keys_option
@output_option
def check(directory: Path, live: bool, headers_only: bool, keys: Keys | None, form: str) -> int:
    """Verify every checksum, chain and row of the index.

    With keys, also that every encrypted entry opens.

    Exit code 1 when something is damaged. The index is read from a copy, and not with --live.
    """
    from logservice.logdb.io.leveldb_kv import LevelDbEngine

    vfs = PosixVfs()
    report = offline.check(
        vfs,
        str(directory),
        kv=LevelDbEngine(vfs),
        read_entries=not headers_only,
        live=live,
        keys=keys,
    )
    _show_check(form, report)
    return exit_codes.OK if report.ok else exit_codes.NEGATIVE


@logdb.command()
@_directory
@_live
@output_option
def dump(directory: Path, live: bool, form: str) -> None:
    """Print every run of records, in the order on disk.

    Damaged places are shown, too.
    """
    for record in offline.dump(PosixVfs(), str(directory), live=live):
        if form == "json":
            say(json.dumps(dataclasses.asdict(record)))
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
        say(f"{where} {text}{rewrite} {record.detail}".rstrip())


@logdb.command()
@_directory
@_live
@keys_option
@output_option
def stats(directory: Path, live: bool, keys: Keys | None, form: str) -> None:
    """Show used and live bytes of each segment, and who keeps it.

    The key that it is encrypted with is shown by its id if it is among the keys that are given.
    """
    rows = [
        {
            "segment": found.name,
            "size": found.size,
            "used_bytes": found.used_bytes,
            "live_bytes": found.live_bytes,
            "groups": found.groups,
            "key": found.key,
            "pinned_by": [f"{shard}/{replica}" for shard, replica in found.pinned_by],
        }
        for found in offline.statistics(PosixVfs(), str(directory), live=live, keys=keys)
    ]
    show_rows(form, rows, "segments")


@logdb.command()
@_directory
@click.argument("shard", type=click.IntRange(min=1))
@_live
@click.option("--from", "start", type=click.IntRange(min=1), default=1, help="First LSN.")
@click.option("--until", type=click.IntRange(min=1), help="Last LSN.")
@click.option("--raw", is_flag=True, help="Records only, one per line, without LSNs.")
@keys_option
@output_option
def records(
    directory: Path,
    shard: int,
    live: bool,
    start: int,
    until: int | None,
    raw: bool,
    keys: Keys | None,
    form: str,
) -> int:
    """Print the records that a replica of SHARD has on disk.

    It may be halted.

    For a person who has to decide which replica is right: what is printed here was not agreed on
    with the others. What cannot be read, gaps, and what may never have been committed, is said on
    stderr. Exit code 1 when something cannot be read.
    """
    with offline.stored_log(PosixVfs(), str(directory), shard, live=live, keys=keys) as log:
        if log.faulty:
            say(f"# replica {log.replica} is halted: {log.faulty}", err=True)
        return _print_records(log, start, until, raw=raw, form=form)


def _print_records(
    log: offline.StoredLog, start: int, until: int | None, *, raw: bool, form: str
) -> int:
    code = exit_codes.OK
    for item in stored_blocks(log):
        if isinstance(item, str):
            say(f"# {item}", err=True)
            code = exit_codes.NEGATIVE
            continue
        end = item.first_lsn + item.record_count
        if end <= start or (until is not None and item.first_lsn > until):
            continue
        notes = [] if item.committed else ["perhaps never committed"]
        notes += [] if item.judged else ["perhaps refused"]
        notes += [f"no records ({item.gap.name.lower()})"] if item.gap is not None else []
        if item.gap is None:
            try:
                found = Block.parse(item.block).records()
            except (CorruptBlock, CodecMissing) as error:
                notes.append(": ".join(filter(None, (error.message, error.metadata.get("detail")))))
                code = exit_codes.NEGATIVE
                found = []
            for lsn, record in enumerate(found, item.first_lsn):
                if start <= lsn <= (until or lsn):
                    _print_record(lsn, record, raw=raw, form=form)
        if notes:
            say(f"# {item.first_lsn}..{end - 1}: {', '.join(notes)}", err=True)
    return code


def _print_record(lsn: int, record: bytes, *, raw: bool, form: str) -> None:
    line = record_line(lsn, record, raw=raw, form=form, terminal=sys.stdout.isatty())
    sys.stdout.buffer.write(line + b"\n")


@logdb.command("rebuild-index")
@_directory
@output_option
def rebuild_index(directory: Path, form: str) -> int:
    """Write the derived index anew from the segments."""
    from logservice.logdb.io.leveldb_kv import LevelDbEngine

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
        "index": list(report.index),
    }
    replicas = [dataclasses.asdict(replica) for replica in report.replicas]
    if form == "json":
        say(json.dumps({**fields, "replicas": replicas}))
        return
    show_fields(form, fields)
    shown = (
        "shard",
        "replica",
        "term",
        "commit",
        "first_index",
        "last_index",
        "first_lsn",
        "next_lsn",
        "live_bytes",
        "removed",
        "faulty",
    )
    rows = [{name: row[name] for name in shown} for row in replicas]
    main = ("shard", "replica", "term", "first_lsn", "next_lsn", "live_bytes")
    show_rows(form, rows, "replicas", main=main, if_any=("removed", "faulty"))
