r"""`logctl append`, `read`, `follow`: append records and print them.

Records are bytes: an argument is one, and so is a line of standard input without its one end, which
is ``\n`` or ``\r\n``. Reading prints ``LSN <tab> record``, or only records with --raw, or one JSON
object per line with -o json. A gap goes to stderr, or is an object with a "gap" field.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TypeVar

import click
from logservice_client import Gap, LogClient, Records, Shard

from logservice.cli.ctl.client_session import Session, pass_session
from logservice.cli.ctl.shard_argument import shard_argument
from logservice.cli.shell.output import output_option, record_line, say, show_fields

_APPENDS_INFLIGHT_MAX = 32
"""How many batches of standard input are in flight; it is enough to keep the stream busy."""

CommandT = TypeVar("CommandT", bound=Callable[..., object])


@click.command()
@shard_argument("shard")
@click.argument("records", nargs=-1)
@click.option(
    "--batch",
    type=click.IntRange(1, 1_000_000),
    default=1000,
    show_default=True,
    help="Lines of standard input that become durable together.",
)
@click.option(
    "--epoch",
    type=click.IntRange(min=0),
    default=0,
    help="The writer's epoch; 0 if none was ever granted.",
)
@click.option(
    "--expected-lsn",
    type=click.IntRange(min=1),
    help="Append only if the first record lands there (arguments only).",
)
@output_option
@pass_session
def append(
    session: Session,
    shard: int,
    records: tuple[str, ...],
    batch: int,
    epoch: int,
    expected_lsn: int | None,
    form: str,
) -> None:
    """Append records: arguments, or lines of stdin.

    RECORDS are appended as one block. Without them, the lines of standard input are appended, in
    blocks of --batch lines. They are bytes: one end of each line goes, nothing else. --timeout is
    for each block.
    """
    if not records and expected_lsn is not None:
        raise click.UsageError("--expected-lsn goes with records as arguments")

    async def work(client: LogClient) -> None:
        log = client.shard(shard)
        log.writer_epoch = epoch
        if records:
            data = [record.encode(errors="surrogateescape") for record in records]
            lsn = await log.append(data, expected_lsn=expected_lsn, timeout=session.timeout_s)
            _show_appended(form, lsn, len(data))
        else:
            await _append_lines(log, _batches(batch), session.patience_s, form)

    session.run(work)


def _batches(size: int) -> Iterator[list[bytes]]:
    lines: list[bytes] = []
    for line in sys.stdin.buffer:
        lines.append(_record(line))
        if len(lines) == size:
            yield lines
            lines = []
    if lines:
        yield lines


def _record(line: bytes) -> bytes:
    """The line without its one end; everything else is the record's."""
    return line[:-2] if line.endswith(b"\r\n") else line.removesuffix(b"\n")


async def _append_lines(
    log: Shard, batches: Iterator[list[bytes]], timeout_s: float, form: str
) -> None:
    """Append the batches, several in flight. After a failure it first prints what was acked."""
    waiting: deque[tuple[asyncio.Task[int], int]] = deque()
    first_lsn = records = 0

    async def take_oldest() -> None:
        nonlocal first_lsn, records
        task, count = waiting.popleft()
        lsn = await task
        first_lsn = first_lsn or lsn
        records += count

    try:
        while True:
            # Reading blocks, so it is done in a thread: acks arrive while a person types.
            batch = await asyncio.to_thread(next, batches, None)
            if batch is None:
                break
            task = asyncio.create_task(log.append(batch, timeout=timeout_s))
            waiting.append((task, len(batch)))
            if len(waiting) >= _APPENDS_INFLIGHT_MAX:
                await take_oldest()
        while waiting:
            await take_oldest()
    finally:
        for task, _ in waiting:
            task.cancel()
        await asyncio.gather(*(task for task, _ in waiting), return_exceptions=True)
        _show_appended(form, first_lsn, records)


def _show_appended(form: str, first_lsn: int, records: int) -> None:
    show_fields(form, {"first_lsn": first_lsn, "records": records})


def _reading_options(command: CommandT) -> CommandT:
    for option in reversed(
        (
            shard_argument("shard"),
            click.option(
                "--from",
                "start",
                type=click.IntRange(min=1),
                help="First LSN; default: the oldest record.",
            ),
            click.option("--until", type=click.IntRange(min=1), help="Last LSN."),
            click.option("--count", type=click.IntRange(min=1), help="Stop after so many records."),
            click.option("--raw", is_flag=True, help="Records only, one per line, without LSNs."),
            output_option,
            pass_session,
        )
    ):
        command = option(command)
    return command


@click.command()
@click.option("--stale", is_flag=True, help="What one replica has, without asking the others.")
@_reading_options
def read(
    session: Session,
    shard: int,
    start: int | None,
    until: int | None,
    count: int | None,
    raw: bool,
    stale: bool,
    form: str,
) -> None:
    """Print the records of a shard up to its tail.

    That is its tail when the command begins. --timeout is for each answer.
    """

    async def work(client: LogClient) -> None:
        log = client.shard(shard)
        status = await log.status(stale=stale, timeout=session.timeout_s)
        lsn = start or status.position.first_lsn
        last = status.position.applied_lsn if until is None else until

        async def items() -> AsyncIterator[Records | Gap]:
            nonlocal lsn
            while True:
                found = await log.read(lsn, stale=stale, timeout=session.patience_s)
                for item in found.items:
                    yield item
                if found.next_lsn == lsn or found.next_lsn > last:
                    return
                lsn = found.next_lsn

        await _print(items(), last, count, raw=raw, form=form)

    session.run(work)


@click.command()
@_reading_options
def follow(
    session: Session,
    shard: int,
    start: int | None,
    until: int | None,
    count: int | None,
    raw: bool,
    form: str,
) -> None:
    """Print the records of a shard, and wait for more.

    It ends when it is interrupted, or a limit is reached. --timeout is how long it waits for a
    store that serves it.
    """

    async def work(client: LogClient) -> None:
        log = client.shard(shard)
        lsn = start
        if lsn is None:
            lsn = (await log.status(timeout=session.timeout_s)).position.first_lsn
        items = log.follow(lsn, until_lsn=until, patience=session.patience_s)
        await _print(items, until, count, raw=raw, form=form)

    session.run(work)


async def _print(
    items: AsyncIterator[Records | Gap],
    last_lsn: int | None,
    count: int | None,
    *,
    raw: bool,
    form: str,
) -> None:
    printed = 0
    out, terminal = sys.stdout.buffer, sys.stdout.isatty()
    async for item in items:
        if isinstance(item, Gap):
            _print_gap(item, form)
            continue
        for lsn, record in enumerate(item.records(), item.first_lsn):
            if last_lsn is not None and lsn > last_lsn:
                return
            line = record_line(lsn, record, raw=raw, form=form, terminal=terminal)
            out.write(line + b"\n")
            printed += 1
            if printed == count:
                out.flush()
                return
        out.flush()


def _print_gap(gap: Gap, form: str) -> None:
    if form == "json":
        fields = {"lsn": gap.first_lsn, "record_count": gap.record_count}
        say(json.dumps({**fields, "gap": gap.reason.name}))
        return
    last = gap.next_lsn - 1
    say(f"# {gap.first_lsn}..{last}: no records ({gap.reason.name.lower()})", err=True)
