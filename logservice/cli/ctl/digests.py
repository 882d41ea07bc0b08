"""`logctl digest`: whether a range of a shard is the same on its replicas, or in two clusters."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import click
from logservice_client import LogClient, RangeDigest
from logservice_wire.errors import LogServiceError, NotReady
from logservice_wire.v1 import hakeeper_pb2

from logservice.cli.ctl.client_session import Session, pass_session
from logservice.cli.ctl.shard_argument import shard_argument
from logservice.cli.shell import exit_codes
from logservice.cli.shell.output import output_option, say, show_fields, show_rows

_SAY_S: Final = 1.0
"""Between two lines about how far it is."""

_WITNESS: Final = "witness"


class _Progress:
    """How far the digests of a range are, on stderr."""

    def __init__(self, from_lsn: int, to_lsn: int) -> None:
        self._range = from_lsn, to_lsn
        self._next_s = time.monotonic() + _SAY_S

    def told(self, at_lsn: int, whose: str = "") -> None:
        """Say it, unless it was said a moment ago."""
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + _SAY_S
        first, end = self._range
        share = 100 * (at_lsn - first) // (end - first)
        say(f"{whose}up to LSN {at_lsn} of {end}, {share} %", err=True)


@click.command()
@shard_argument("shard_id")
@click.argument("from_lsn", metavar="FROM_LSN", type=click.IntRange(min=1))
@click.argument("to_lsn", metavar="TO_LSN", type=click.IntRange(min=2))
@click.option("--all-replicas", is_flag=True, help="Ask each replica; exit code 1 if they differ.")
@click.option("--stale", is_flag=True, help="What a replica has, without asking the others.")
@output_option
@pass_session
def digest(
    session: Session,
    shard_id: int,
    from_lsn: int,
    to_lsn: int,
    all_replicas: bool,
    stale: bool,
    form: str,
) -> int:
    """Print the digest of a shard from FROM_LSN to before TO_LSN.

    It covers records and gaps, and no blocks: a shard that was restored or mirrored elsewhere has
    the same one. --timeout is for each part of the work, not for all of it.
    """
    if from_lsn >= to_lsn:
        raise click.UsageError("TO_LSN is the LSN behind the last one, so it is above FROM_LSN")
    progress = _Progress(from_lsn, to_lsn)
    if all_replicas:
        return _of_all(session, shard_id, (from_lsn, to_lsn), stale, progress, form)
    found = session.run(
        lambda client: client.shard(shard_id).digest(
            from_lsn, to_lsn, stale=stale, progress=progress.told, patience=session.patience_s
        )
    )
    fields = {"shard": shard_id, "from_lsn": from_lsn, "to_lsn": to_lsn, **_described(found)}
    show_fields(form, fields)
    return exit_codes.OK


def _of_all(
    session: Session,
    shard_id: int,
    span: tuple[int, int],
    stale: bool,
    progress: _Progress,
    form: str,
) -> int:
    async def ask(
        client: LogClient, replica: hakeeper_pb2.ReplicaInfo
    ) -> RangeDigest | LogServiceError:
        store = replica.store_id
        if not replica.client_address:
            # An empty address would mean any replica, and this one would count as asked.
            return NotReady(f"nobody knows where clients reach {store}")
        try:
            return await client.shard(shard_id).digest(
                *span,
                stale=stale,
                address=replica.client_address,
                progress=lambda at_lsn: progress.told(at_lsn, f"{store}: "),
                patience=session.patience_s,
            )
        except LogServiceError as error:
            return error

    async def work(
        client: LogClient,
    ) -> list[tuple[hakeeper_pb2.ReplicaInfo, RangeDigest | LogServiceError]]:
        info = await client.hakeeper.shard_info(shard_id, timeout=session.timeout_s)
        # A witness has no records.
        asked = [one for one in info.replicas if one.role != _WITNESS]
        answers = await asyncio.gather(*(ask(client, one) for one in asked))
        return list(zip(asked, answers, strict=True))

    found = session.run(work)
    rows: list[dict[str, object]] = []
    for replica, answer in found:
        row: dict[str, object] = {"store": replica.store_id, "role": replica.role}
        if isinstance(answer, LogServiceError):
            row |= {"digest": None, "records": None, "gap_lsns": None, "value_bytes": None}
            row["error"] = str(answer)
        else:
            row |= {**_described(answer), "error": None}
        rows.append(row)
    show_rows(form, rows, f"LSNs {span[0]} to before {span[1]} of shard {shard_id}")
    digests = {row["digest"] for row in rows} - {None}
    if len(digests) > 1:
        say("the replicas differ", err=True)
        return exit_codes.NEGATIVE
    failed = [answer for _, answer in found if isinstance(answer, LogServiceError)]
    return exit_codes.tell_error(form, failed[0]) if failed else exit_codes.OK


def _described(found: RangeDigest) -> dict[str, object]:
    return {
        "digest": str(found),
        "records": found.records,
        "gap_lsns": found.gap_lsns,
        "value_bytes": found.value_bytes,
    }
