"""Bad histories: truncation, the shape of answers, gaps, replicas that differ."""

from __future__ import annotations

import dataclasses
import random

from logservice.sim.history import Append, Outcome, Read, Run, Truncate
from tests.chaos.mutations import (
    History,
    acked,
    answered,
    final,
    live,
    mutation,
    pick,
    strong,
    swap,
)

# --- truncation ---------------------------------------------------------------------


@mutation("TRUNCATION", "CHAIN")
def first_lsn_goes_back(history: History, chance: random.Random) -> bool:
    done = pick(history, chance, Truncate, lambda op: op.outcome is Outcome.OK)
    if done is None:
        return False
    read = pick(history, chance, Read, lambda op: strong(op) and op.invoked > done.returned)
    return read is not None and swap(history, read, first_lsn=done.truncated_lsn)


@mutation("TRUNCATION")
def truncated_without_being_asked(history: History, chance: random.Random) -> bool:
    asked = max((op.lsn for op in history if isinstance(op, Truncate)), default=0)
    read = pick(history, chance, Read, lambda op: strong(op) and op.applied_lsn > asked)
    if read is None:
        return False
    history[:] = [op for op in history if op is read or not isinstance(op, Read)]
    first = asked + 2
    return swap(history, read, first_lsn=first, lsn=first, runs=(), next_lsn=first)


@mutation("TRUNCATION")
def replica_truncated_ahead(history: History, chance: random.Random) -> bool:
    asked = max((op.lsn for op in history if isinstance(op, Truncate)), default=0)
    read = pick(history, chance, Read, lambda op: op.final and op.applied_lsn > asked + 1)
    return read is not None and swap(history, read, first_lsn=asked + 2)


@mutation("TRUNCATION")
def acked_truncation_forgotten(history: History, chance: random.Random) -> bool:
    history.append(Truncate("t", 3, 0.0, 0.1, Outcome.OK, 3))
    for op in [op for op in history if isinstance(op, Read)]:
        swap(history, op, first_lsn=min(op.first_lsn, 1))
    return True


@mutation("TRUNCATION")
def truncated_more_than_asked(history: History, chance: random.Random) -> bool:
    victim = pick(history, chance, Truncate, lambda op: op.outcome is Outcome.OK)
    return victim is not None and swap(history, victim, truncated_lsn=victim.lsn + 1)


@mutation("TRUNCATION")
def truncation_went_back(history: History, chance: random.Random) -> bool:
    one = pick(history, chance, Truncate, lambda op: op.outcome is Outcome.OK and op.lsn > 1)
    if one is None:
        return False
    history.append(
        Truncate(
            "t", one.lsn, one.returned + 1, one.returned + 2, Outcome.OK, one.truncated_lsn - 1
        )
    )
    return True


@mutation("TRUNCATION")
def answered_below_first_lsn(history: History, chance: random.Random) -> bool:
    read = pick(history, chance, Read, lambda op: answered(op) and op.first_lsn > 1)
    if read is None:
        return False
    return swap(history, read, lsn=read.first_lsn - 1)


@mutation("TRUNCATION", "SHAPE")
def empty_success_below_first_lsn(history: History, chance: random.Random) -> bool:
    read = pick(history, chance, Read, lambda op: op.error == "TRUNCATED")
    return read is not None and swap(
        history, read, error="", runs=(), next_lsn=read.lsn, applied_lsn=read.first_lsn
    )


@mutation("SHAPE")
def truncated_error_for_a_live_lsn(history: History, chance: random.Random) -> bool:
    read = pick(history, chance, Read, strong)
    return read is not None and swap(
        history, read, error="TRUNCATED", lsn=read.first_lsn, runs=(), applied_lsn=0
    )


@mutation("CHAIN", "TRUNCATION")
def pairs_do_not_form_a_chain(history: History, chance: random.Random) -> bool:
    read = pick(history, chance, Read, lambda op: strong(op) and op.first_lsn > 1)
    if read is None:
        return False
    history.append(
        dataclasses.replace(
            read,
            first_lsn=read.first_lsn - 1,
            lsn=read.applied_lsn + 2,
            runs=(),
            next_lsn=read.applied_lsn + 2,
            applied_lsn=read.applied_lsn + 1,
        )
    )
    return True


# --- shape and gaps -----------------------------------------------------------------


@mutation("SHAPE")
def hole_in_a_read(history: History, chance: random.Random) -> bool:
    read = pick(history, chance, Read, lambda op: answered(op) and len(op.runs) > 2)
    return read is not None and swap(history, read, runs=(read.runs[0], *read.runs[2:]))


@mutation("SHAPE")
def runs_out_of_order(history: History, chance: random.Random) -> bool:
    read = pick(history, chance, Read, lambda op: answered(op) and len(op.runs) > 1)
    return read is not None and swap(history, read, runs=tuple(reversed(read.runs)))


@mutation("SHAPE")
def empty_read_below_the_tail(history: History, chance: random.Random) -> bool:
    read = pick(history, chance, Read, answered)
    return read is not None and swap(history, read, runs=(), next_lsn=read.lsn)


@mutation("SHAPE")
def next_lsn_skips_a_record(history: History, chance: random.Random) -> bool:
    read = pick(history, chance, Read, answered)
    return read is not None and swap(history, read, next_lsn=read.next_lsn + 1)


@mutation("SHAPE")
def read_beyond_applied(history: History, chance: random.Random) -> bool:
    read = pick(history, chance, Read, answered)
    return read is not None and swap(history, read, applied_lsn=read.next_lsn - 2)


@mutation("SHAPE")
def read_starts_above_what_was_asked(history: History, chance: random.Random) -> bool:
    read = pick(history, chance, Read, lambda op: answered(op) and op.lsn > op.first_lsn)
    if read is None or read.runs[0].lsn != read.lsn:
        return False
    return swap(history, read, lsn=read.lsn - 1)


@mutation("SHAPE")
def beyond_tail_at_the_tail(history: History, chance: random.Random) -> bool:
    read = pick(history, chance, Read, lambda op: op.error == "BEYOND_TAIL")
    return read is not None and swap(history, read, applied_lsn=read.lsn - 1, linearizable=False)


@mutation("SHAPE")
def run_of_no_records(history: History, chance: random.Random) -> bool:
    read = pick(history, chance, Read, answered)
    if read is None:
        return False
    return swap(history, read, runs=(*read.runs, Run(read.next_lsn, 0, gap="FENCED")))


@mutation("GAP")
def gap_without_a_reason(history: History, chance: random.Random) -> bool:
    read = pick(history, chance, Read, lambda op: any(run.gap for run in op.runs))
    if read is None:
        return False
    runs = tuple(dataclasses.replace(run, gap="BECAUSE") if run.gap else run for run in read.runs)
    return swap(history, read, runs=runs)


@mutation("GAP")
def gap_over_an_acked_record(history: History, chance: random.Random) -> bool:
    victim = pick(history, chance, Append, live(history))
    if victim is None:
        return False
    history.append(
        Read(
            "r",
            "store-2",
            victim.returned,
            victim.returned + 99,
            victim.lsn,
            (Run(victim.lsn, victim.count, gap="FENCED"),),
            victim.lsn + victim.count,
            1,
            victim.lsn + victim.count - 1,
            False,
        )
    )
    return True


@mutation("GAP")
def gap_changes_its_reason(history: History, chance: random.Random) -> bool:
    read = pick(history, chance, Read, lambda op: op.final and any(run.gap for run in op.runs))
    if read is None:
        return False
    runs = tuple(dataclasses.replace(run, gap="SEQUENCE") if run.gap else run for run in read.runs)
    return swap(history, read, runs=runs)


@mutation("OVERLAP", "GAP")
def record_becomes_a_gap_later(history: History, chance: random.Random) -> bool:
    seen = {run.batch for op in history if isinstance(op, Read) and not op.final for run in op.runs}
    victim = pick(
        history,
        chance,
        Append,
        lambda op: op.outcome is Outcome.UNKNOWN and op.batch in seen,
    )
    if victim is None:
        return False
    found = False
    for op in [op for op in history if isinstance(op, Read) and op.final]:
        runs = tuple(
            dataclasses.replace(run, batch="", gap="FENCED") if run.batch == victim.batch else run
            for run in op.runs
        )
        found = found or runs != op.runs
        swap(history, op, runs=runs)
    return found


# --- replicas -----------------------------------------------------------------------


@mutation("DIVERGED")
def replica_has_more(history: History, chance: random.Random) -> bool:
    read = pick(history, chance, Read, final)
    if read is None:
        return False
    end = read.next_lsn
    run = Run(end, 1, gap="FENCED")
    return swap(history, read, runs=(*read.runs, run), next_lsn=end + 1, applied_lsn=end)


@mutation("DIVERGED", "TRUNCATION")
def replica_did_not_truncate(history: History, chance: random.Random) -> bool:
    read = pick(history, chance, Read, lambda op: op.final and op.first_lsn > 1)
    if read is None:
        return False
    lsn = read.first_lsn - 1
    runs = read.runs
    if runs and runs[0].lsn >= read.first_lsn:
        runs = (Run(lsn, 1, gap="FENCED"), *runs)
    return swap(history, read, first_lsn=lsn, lsn=lsn, runs=runs)


@mutation("MALFORMED")
def returned_before_invoked(history: History, chance: random.Random) -> bool:
    op = chance.choice(history)
    return swap(history, op, returned=op.invoked - 1)


@mutation("MALFORMED")
def batch_name_used_twice(history: History, chance: random.Random) -> bool:
    one = pick(history, chance, Append, acked)
    if one is None:
        return False
    history.append(dataclasses.replace(one))
    return True
