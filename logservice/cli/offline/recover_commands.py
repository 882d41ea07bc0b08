"""`logservice recover`: what is left of shards whose majority is gone, and how they go on.

For disks that are lost for good. Nothing is written into a directory that is named with `--from`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click
from logservice_wire.errors import InvalidArgument

from logservice.cli.shell import exit_codes
from logservice.cli.shell.keys_option import keys_option
from logservice.cli.shell.output import output_option, say, show_rows
from logservice.ids import HAKEEPER_SHARD, StoreId
from logservice.logdb.io.posix_vfs import PosixVfs
from logservice.membership import Membership
from logservice.nodehost.recover.choice import Choice, choose
from logservice.nodehost.recover.evidence import Evidence, read_directory
from logservice.nodehost.recover.rebuild import REPORT_NAME, Rebuilt, Target, rebuild, refusal
from logservice.sealing_keys import Keys

_DIRECTORY = click.Path(path_type=Path, exists=True, file_okay=False)


@click.group()
def recover() -> None:
    """Go on without a majority whose disks are lost for good.

    Read docs/operations/lost-quorum.md first: acknowledged records may be lost.
    """


@recover.command()
@click.argument("directories", type=_DIRECTORY, nargs=-1, required=True)
@keys_option
@output_option
def inspect(directories: Sequence[Path], keys: Keys | None, form: str) -> int:
    """Show what is left of each shard.

    The stores of the directories are stopped. Nothing is changed. Exit code 1 when a shard cannot
    be rebuilt from them.
    """
    choices = _choices(directories, keys)
    if form == "json":
        say(json.dumps([_fields(one) for one in choices]))
    else:
        rows = [_row(one, of) for of in choices for one in of.found]
        main = ("shard", "store", "replica", "chosen", "term", "last_index", "next_lsn")
        show_rows(form, rows, "replicas", main=main, if_any=("lineage", "lineage_id", "damage"))
        for one in choices:
            say(_verdict(one))
    return exit_codes.NEGATIVE if any(map(refusal, choices)) else exit_codes.OK


@recover.command()
@click.option(
    "--shard", "shards", type=click.IntRange(min=0), multiple=True, help="Which; several."
)
@click.option("--all", "everything", is_flag=True, help="Every shard that can and has to be.")
@click.option(
    "--from", "directories", type=_DIRECTORY, multiple=True, required=True, help="What is left."
)
@click.option(
    "--to",
    "target",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="The new data directory.",
)
@click.option("--store", help="The store that gets it; the one whose directory is named first.")
@click.option(
    "--i-know-records-may-be-lost",
    "person",
    metavar="NAME",
    required=True,
    help="Who decides that.",
)
@keys_option
@output_option
def write(
    shards: Sequence[int],
    everything: bool,
    directories: Sequence[Path],
    target: Path,
    store: str | None,
    person: str,
    keys: Keys | None,
    form: str,
) -> None:
    """Write a new data directory from what is left.

    With keys, its entries are encrypted with the active one.

    In it shards go on from the longest log that is left. Each log is another lineage there, with
    one voter. The old directories stay as they are: keep them as evidence.
    """
    if bool(shards) == everything:
        raise InvalidArgument("name shards with --shard, or say --all", field="shard")
    choices = _choices(directories, keys)
    if everything:
        chosen = [one for one in choices if not refusal(one)]
        for one in choices:
            if one not in chosen:
                say(f"# shard {one.shard} is left out: {refusal(one)}", err=True)
    else:
        known = {one.shard: one for one in choices}
        if missing := sorted(set(shards) - known.keys()):
            raise InvalidArgument(f"no replica of shard {missing[0]} is there", field="shard")
        chosen = [known[one] for one in sorted(set(shards))]  # type: ignore[index]
    if not chosen:
        raise InvalidArgument("there is nothing to rebuild", field="shard")
    for one in chosen:
        say(f"# {_verdict(one)}", err=True)
    first = next(one for choice in choices for one in choice.found)
    name = StoreId(store or first.identity.store_id)
    vfs = PosixVfs()
    from logservice.logdb.io.leveldb_kv import LevelDbEngine

    to = Target(str(target), name, person, keys=keys)
    done = rebuild(vfs, LevelDbEngine(vfs), chosen, to, _progress)
    rows = [_rebuilt(one) for one in done]
    if form == "json":
        say(json.dumps(rows))
        return
    show_rows(form, rows, "shards")
    if any(one.shard == HAKEEPER_SHARD for one in done):
        say(f"{target} is a data directory of {name}. Start that store with it, and with its other")
        say("directories only for shards that were left out because their majority is there.")
        return
    say(f"{target} is one more data directory of {name}. First tell HAKeeper:")
    say(f"  logctl shard adopt {target / REPORT_NAME} --i-know-records-may-be-lost {person}")


def _choices(directories: Sequence[Path], keys: Keys | None) -> list[Choice]:
    vfs = PosixVfs()
    found: list[Evidence] = []
    for directory in directories:
        found += read_directory(vfs, str(directory), _progress, keys)
    return choose(found)


def _progress(text: str) -> None:
    say(f"# {text}", err=True)


def _row(one: Evidence, of: Choice) -> dict[str, object]:
    log = one.log.state if one.log is not None else None
    return {
        "shard": one.shard,
        "store": one.identity.store_id,
        "replica": one.replica,
        "chosen": one is of.chosen,
        "term": one.last_term,
        "last_index": one.last_index,
        "commit": one.commit,
        "installed": one.installed,
        "next_lsn": one.next_lsn,
        "truncated": log.truncated_lsn if log is not None else None,
        "epoch": log.writer_epoch if log is not None else None,
        "lineage": one.lineage.number if log is not None else None,
        "lineage_id": one.lineage.id.hex() if one.lineage.number else None,
        "voters": _voters(one.membership),
        "damage": "; ".join((*one.damage, *(["a witness has no records"] if one.witness else []))),
    }


def _voters(membership: Membership) -> str:
    names = {one.replica_id: one.store_id for one in membership.members}
    return ", ".join(f"{voter} on {names.get(voter, '?')}" for voter in membership.voters)


def _fields(one: Choice) -> dict[str, object]:
    return {
        "shard": one.shard,
        "refused": refusal(one),
        "last_lsn": one.last_lsn,
        "known_lost_lsn": one.known_lost if one.known_lost > one.last_lsn else None,
        "replicas": [_row(found, one) for found in one.found],
    }


def _verdict(one: Choice) -> str:
    if why := refusal(one):
        return f"shard {one.shard} is not rebuilt: {why}"
    assert one.chosen is not None
    source = f"{one.chosen.directory}, up to entry {one.chosen.last_index}"
    if one.shard == HAKEEPER_SHARD:
        return f"shard 0 goes on from {source}; what HAKeeper decided behind it is lost"
    lost = f"LSNs behind {one.last_lsn} are lost, of which nobody knows how many there were"
    if one.known_lost > one.last_lsn:
        lost += f" (at least up to {one.known_lost})"
    return f"shard {one.shard} goes on from {source}; {lost}: ({one.last_lsn}, unknown]"


def _rebuilt(one: Rebuilt) -> dict[str, object]:
    return {
        "shard": one.shard,
        "replica": one.replica,
        "last_index": one.last_index,
        "fork_lsn": one.lineage.fork_lsn if one.lineage.number else None,
        "number": one.lineage.number,
        "lineage": one.lineage.id.hex() if one.lineage.number else "",
        "from": one.source,
    }
