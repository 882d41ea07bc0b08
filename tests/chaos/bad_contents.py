"""Bad histories: records lost, doubled, invented, out of order."""

from __future__ import annotations

import dataclasses
import random

from logservice.sim.history import Append, Outcome, Read, Run
from tests.chaos.mutations import (
    History,
    acked,
    answered,
    final,
    kept,
    live,
    mutation,
    pick,
    strong,
    swap,
)

# --- lost and doubled ---------------------------------------------------------------


@mutation("LOST")
def acked_batch_lost_everywhere(history: History, chance: random.Random) -> bool:
    victim = pick(history, chance, Append, live(history))
    if victim is None:
        return False
    for op in [op for op in history if isinstance(op, Read)]:
        if any(run.batch == victim.batch for run in op.runs):
            runs = tuple(
                dataclasses.replace(run, batch="", gap="FENCED")
                if run.batch == victim.batch
                else run
                for run in op.runs
            )
            swap(history, op, runs=runs)
    return True


@mutation("LOST", "GAP")
def acked_batch_lost_on_one_replica(history: History, chance: random.Random) -> bool:
    read = pick(history, chance, Read, final)
    victim = pick(history, chance, Append, live(history))
    if read is None or victim is None:
        return False
    return swap(history, read, runs=tuple(run for run in read.runs if run.batch != victim.batch))


@mutation("LOST", "DIVERGED")
def tail_of_one_replica_cut(history: History, chance: random.Random) -> bool:
    read = pick(history, chance, Read, lambda op: op.final and len(op.runs) > 2)
    if read is None:
        return False
    last = read.runs[-1]
    return swap(history, read, runs=read.runs[:-1], next_lsn=last.lsn, applied_lsn=last.lsn - 1)


@mutation("LOST")
def last_acked_batch_lost_on_all_replicas(history: History, chance: random.Random) -> bool:
    last = max(
        (op for op in history if isinstance(op, Append) and acked(op)), key=lambda op: op.lsn
    )
    finals = [op for op in history if isinstance(op, Read) and op.final]
    if last.lsn <= kept(history):
        return False
    for op in finals:
        runs = tuple(run for run in op.runs if run.lsn < last.lsn)
        swap(history, op, runs=runs, next_lsn=last.lsn, applied_lsn=last.lsn - 1)
    return True


@mutation("LOST")
def final_read_stops_early(history: History, chance: random.Random) -> bool:
    read = pick(history, chance, Read, lambda op: op.final and len(op.runs) > 2)
    if read is None:
        return False
    return swap(history, read, runs=read.runs[:-1], next_lsn=read.runs[-1].lsn)


@mutation("LOST", "DOUBLED", "OVERLAP")
def ack_with_the_lsn_of_the_next(history: History, chance: random.Random) -> bool:
    victim = pick(history, chance, Append, live(history))
    return victim is not None and swap(history, victim, lsn=victim.lsn + victim.count)


@mutation("DOUBLED", "OVERLAP")
def retry_appended_twice(history: History, chance: random.Random) -> bool:
    first = kept(history)
    victim = pick(history, chance, Append, lambda op: acked(op) and op.lsn >= first)
    finals = [op for op in history if isinstance(op, Read) and op.final]
    if victim is None:
        return False
    for op in finals:
        run = Run(op.next_lsn, victim.count, victim.batch)
        end = op.next_lsn + victim.count
        swap(history, op, runs=(*op.runs, run), next_lsn=end, applied_lsn=end - 1)
    return True


@mutation("DOUBLED")
def one_replica_has_it_elsewhere(history: History, chance: random.Random) -> bool:
    read = pick(history, chance, Read, final)
    if read is None:
        return False
    for low, high in zip(read.runs, read.runs[1:], strict=False):
        if low.batch and high.batch and low.lsn >= read.first_lsn:
            swapped = (
                dataclasses.replace(high, lsn=low.lsn),
                dataclasses.replace(low, lsn=low.lsn + high.count),
            )
            runs = tuple(
                swapped[0] if run is low else swapped[1] if run is high else run
                for run in read.runs
            )
            return swap(history, read, runs=runs)
    return False


@mutation("OVERLAP", "DOUBLED")
def same_lsn_acked_twice(history: History, chance: random.Random) -> bool:
    one = pick(history, chance, Append, acked)
    two = pick(history, chance, Append, lambda op: acked(op) and op is not one)
    return one is not None and two is not None and swap(history, two, lsn=one.lsn)


@mutation("OVERLAP", "DOUBLED")
def acks_overlap_by_one_record(history: History, chance: random.Random) -> bool:
    victim = pick(history, chance, Append, lambda op: acked(op) and op.lsn > 1)
    return victim is not None and swap(history, victim, lsn=victim.lsn - 1)


@mutation("OVERLAP")
def batch_grew_into_the_next(history: History, chance: random.Random) -> bool:
    victim = pick(history, chance, Append, live(history))
    if victim is None or victim.lsn + victim.count >= final_end(history):
        return False
    return swap(history, victim, count=victim.count + 1)


def final_end(history: History) -> int:
    return next(op.next_lsn for op in history if isinstance(op, Read) and op.final)


# --- what nobody wrote --------------------------------------------------------------


@mutation("FOREIGN")
def bytes_nobody_appended(history: History, chance: random.Random) -> bool:
    read = pick(history, chance, Read, answered)
    if read is None:
        return False
    first = dataclasses.replace(read.runs[0], batch="", gap="", start=0)
    return swap(history, read, runs=(first, *read.runs[1:]))


@mutation("FOREIGN")
def unknown_batch_name(history: History, chance: random.Random) -> bool:
    read = pick(history, chance, Read, final)
    if read is None or not read.runs:
        return False
    last = dataclasses.replace(read.runs[-1], batch="nobody's", gap="")
    return swap(history, read, runs=(*read.runs[:-1], last))


@mutation("FOREIGN")
def more_records_than_appended(history: History, chance: random.Random) -> bool:
    read = pick(history, chance, Read, lambda op: answered(op) and bool(op.runs[-1].batch))
    if read is None:
        return False
    last = dataclasses.replace(read.runs[-1], count=read.runs[-1].count + 1)
    return swap(history, read, runs=(*read.runs[:-1], last))


@mutation("PHANTOM")
def failed_append_is_visible(history: History, chance: random.Random) -> bool:
    victim = pick(history, chance, Append, live(history))
    return victim is not None and swap(history, victim, outcome=Outcome.FAILED, lsn=0)


@mutation("FUTURE", "ORDER")
def read_before_the_append_began(history: History, chance: random.Random) -> bool:
    read = pick(history, chance, Read, lambda op: answered(op) and bool(op.runs[-1].batch))
    if read is None:
        return False
    append = next(
        op for op in history if isinstance(op, Append) and op.batch == read.runs[-1].batch
    )
    return swap(
        history,
        append,
        invoked=read.returned + 0.5,
        returned=max(append.returned, read.returned + 1),
    )


@mutation("TORN")
def last_batch_torn(history: History, chance: random.Random) -> bool:
    finals = [op for op in history if isinstance(op, Read) and op.final]
    last = finals[0].runs[-1]
    if last.count < 2 or not last.batch or last.lsn < finals[0].first_lsn:
        return False
    append = next(op for op in history if isinstance(op, Append) and op.batch == last.batch)
    swap(history, append, outcome=Outcome.UNKNOWN, lsn=0)
    for op in finals:
        half = dataclasses.replace(last, count=last.count - 1)
        end = half.lsn + half.count
        swap(history, op, runs=(*op.runs[:-1], half), next_lsn=end, applied_lsn=end - 1)
    for read in [op for op in history if isinstance(op, Read) and not op.final]:
        if read.applied_lsn >= last.lsn:
            history.remove(read)
    return True


@mutation("OVERLAP", "LOST", "TORN", "GAP")
def middle_of_a_batch_is_another(history: History, chance: random.Random) -> bool:
    read = pick(
        history, chance, Read, lambda op: op.final and any(run.count >= 3 for run in op.runs)
    )
    if read is None:
        return False
    victim = next(run for run in read.runs if run.count >= 3)
    gap = Run(victim.lsn + 1, 1, gap="FENCED")
    rest = dataclasses.replace(victim, lsn=victim.lsn + 2, start=2, count=victim.count - 2)
    parts = (dataclasses.replace(victim, count=1), gap, rest)
    if not victim.batch or victim.lsn < read.first_lsn:
        return False
    runs = tuple(part for run in read.runs for part in (parts if run is victim else (run,)))
    return swap(history, read, runs=runs)


# --- real time ----------------------------------------------------------------------


@mutation("ORDER")
def stale_read_called_linearizable(history: History, chance: random.Random) -> bool:
    read = pick(history, chance, Read, lambda op: strong(op) and op.applied_lsn > 60)
    if read is None:
        return False
    return swap(
        history,
        read,
        lsn=read.first_lsn,
        runs=(),
        next_lsn=read.first_lsn,
        applied_lsn=read.first_lsn - 1,
        invoked=read.invoked + 50,
        returned=read.returned + 60,
    )


@mutation("ORDER")
def read_begins_after_a_later_append_returned(history: History, chance: random.Random) -> bool:
    read = pick(history, chance, Read, strong)
    if read is None:
        return False
    later = pick(history, chance, Append, lambda op: acked(op) and op.lsn > read.applied_lsn)
    if later is None:
        return False
    return swap(
        history,
        read,
        invoked=later.returned + 0.01,
        returned=max(read.returned, later.returned + 1),
    )


@mutation("ORDER")
def append_begins_after_a_higher_one_returned(history: History, chance: random.Random) -> bool:
    low = pick(history, chance, Append, acked)
    if low is None:
        return False
    high = pick(history, chance, Append, lambda op: acked(op) and op.lsn > low.lsn)
    if high is None:
        return False
    return swap(history, low, invoked=high.returned + 0.01, returned=high.returned + 1, stream="")


@mutation("ORDER", "DOUBLED")
def two_distant_acks_exchanged(history: History, chance: random.Random) -> bool:
    low = pick(history, chance, Append, lambda op: acked(op) and op.count == 1)
    if low is None:
        return False
    high = pick(
        history,
        chance,
        Append,
        lambda op: acked(op) and op.count == 1 and op.invoked > low.returned,
    )
    if high is None:
        return False
    first, second = low.lsn, high.lsn
    swap(history, low, lsn=second, stream="")
    return swap(history, high, lsn=first, stream="")


@mutation("ORDER")
def unknown_append_takes_effect_before_it_began(history: History, chance: random.Random) -> bool:
    runs = next(op.runs for op in history if isinstance(op, Read) and op.final)
    places = {run.batch: run.lsn for run in runs}
    last = max(op.lsn for op in history if isinstance(op, Append))
    victim = pick(
        history,
        chance,
        Append,
        lambda op: op.outcome is Outcome.UNKNOWN and 0 < places.get(op.batch, 0) < last,
    )
    if victim is None:
        return False
    end = max(op.returned for op in history if isinstance(op, Append))
    for read in [op for op in history if isinstance(op, Read) and not op.final]:
        if any(run.batch == victim.batch for run in read.runs):
            history.remove(read)
    return swap(history, victim, invoked=end + 1, returned=end + 2)


@mutation("ORDER")
def read_misses_an_acked_append(history: History, chance: random.Random) -> bool:
    read = pick(history, chance, Read, lambda op: strong(op) and len(op.runs) > 0)
    if read is None:
        return False
    missed = pick(
        history,
        chance,
        Append,
        lambda op: (
            acked(op)
            and op.returned < read.invoked
            and op.lsn + op.count - 1 <= read.applied_lsn
            and op.lsn > read.first_lsn
        ),
    )
    if missed is None:
        return False
    return swap(
        history, read, lsn=missed.lsn, runs=(), next_lsn=missed.lsn, applied_lsn=missed.lsn - 1
    )


@mutation("ORDER")
def beyond_tail_of_what_was_acked(history: History, chance: random.Random) -> bool:
    victim = pick(history, chance, Append, acked)
    if victim is None:
        return False
    history.append(
        Read(
            "r",
            "store-1",
            victim.returned + 1,
            victim.returned + 2,
            victim.lsn + 1,
            (),
            victim.lsn + 1,
            0,
            victim.lsn - 1,
            True,
            False,
            "BEYOND_TAIL",
        )
    )
    return True


# --- streams ------------------------------------------------------------------------


@mutation("STREAM")
def stream_out_of_sequence(history: History, chance: random.Random) -> bool:
    one = pick(history, chance, Append, lambda op: acked(op) and op.sequence > 0)
    if one is None:
        return False
    two = pick(
        history,
        chance,
        Append,
        lambda op: acked(op) and op.stream == one.stream and op is not one,
    )
    if two is None:
        return False
    first, second = one.sequence, two.sequence
    swap(history, one, sequence=second)
    return swap(history, two, sequence=first)


@mutation("STREAM")
def success_after_a_failure_in_the_stream(history: History, chance: random.Random) -> bool:
    victim = pick(history, chance, Append, lambda op: op.outcome is Outcome.FAILED)
    if victim is None:
        return False
    prior = pick(
        history,
        chance,
        Append,
        lambda op: acked(op) and op.stream != victim.stream and op.lsn > 0,
    )
    return prior is not None and swap(
        history, prior, stream=victim.stream, sequence=victim.sequence + 1
    )


@mutation("STREAM")
def unknown_one_skipped_by_its_session(history: History, chance: random.Random) -> bool:
    first = kept(history)
    stream = pick(history, chance, Append, lambda op: acked(op) and op.lsn >= first)
    if stream is None:
        return False
    later = max(
        (op for op in history if isinstance(op, Append) and op.stream == stream.stream),
        key=lambda op: op.sequence,
    )
    if not acked(later) or later is stream:
        return False
    for op in [op for op in history if isinstance(op, Append) and op.stream == stream.stream]:
        if op.sequence > stream.sequence:
            swap(history, op, sequence=op.sequence + 1)
    skipped = Append(stream.client, "skipped", 1, stream.invoked, stream.returned, Outcome.UNKNOWN)
    history.append(dataclasses.replace(skipped, stream=stream.stream, sequence=stream.sequence + 1))
    return True
