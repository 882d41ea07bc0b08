"""Histories of a log, and the rule that decides whether one is right.

An append returns its LSN and every read says up to where it saw the log, so the total order is
*given*: no search is needed. Records carry the name of
their batch and their number in it, so an observation of many records is one `Run`, and the whole
check is a few sorts: O(n log n) in operations and runs.

Rules, each with the guarantee of docs/guarantees.md that it checks:

- MALFORMED: the history itself is wrong (a tester's bug).
- FOREIGN: somebody saw bytes that nobody appended (G3).
- DOUBLED: a record has two LSNs (G5).
- OVERLAP: an LSN has two contents: records, or a record and a gap (G1, G2, G3).
- FUTURE: a record was seen before its append was invoked (G2).
- PHANTOM: a record of a definitely failed append was seen (G5).
- TORN: only a part of a batch is in the log (blocks are atomic).
- ORDER: real-time order broken: an operation returned before another began, but lies after it
  (G2, G3).
- STREAM: within one session: LSNs out of sequence, a success after a failure, or a hole (G2).
- CHAIN: (first_lsn, applied_lsn) pairs of linearizable reads do not form a chain (G3).
- TRUNCATION: first_lsn went back, moved without being asked, or an answer below it (G4).
- SHAPE: a read's runs are not consecutive, do not fit its bounds, or it is empty below the
  tail (G3).
- GAP: a gap without a reason, or over an acked record (G3).
- LOST: an acked record is missing from a final read (G1).
- DIVERGED: final reads of two replicas differ in their bounds (G3).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

VIOLATIONS_PER_RULE_MAX = 20
GAP_REASONS = frozenset({"FENCED", "WRONG_EXPECTED_LSN", "SEQUENCE"})


class Outcome(Enum):
    """What a client knows of its operation."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Append:
    """`lsn`: of the first record when OK.

    `stream`, `sequence`: appends whose LSNs are in the order of their sequences; empty without.
    `session`: the stream is one session, so what is missing ends it for what comes behind.
    """

    client: str
    batch: str
    count: int
    invoked: float
    returned: float
    outcome: Outcome
    lsn: int = 0
    stream: str = ""
    sequence: int = 0
    session: bool = True

    @property
    def finished(self) -> float:
        """Latest moment at which it can have taken effect."""
        return self.returned if self.outcome is Outcome.OK else math.inf


@dataclass(frozen=True, slots=True)
class Run:
    """`count` LSNs from `lsn`: records `start`... of `batch`, or a gap with its reason.

    Neither batch nor gap: bytes that are no record of ours.
    """

    lsn: int
    count: int
    batch: str = ""
    start: int = 0
    gap: str = ""


@dataclass(frozen=True, slots=True)
class Read:
    """One answer. `error`: empty, TRUNCATED or BEYOND_TAIL; others are not recorded.

    `first_lsn`, `applied_lsn`: as the answer says. TRUNCATED tells the first only, BEYOND_TAIL the
    second only. `final`: from the first LSN to the end of one replica after everything has healed.
    """

    client: str
    replica: str
    invoked: float
    returned: float
    lsn: int
    runs: tuple[Run, ...]
    next_lsn: int
    first_lsn: int
    applied_lsn: int
    linearizable: bool = True
    final: bool = False
    error: str = ""

    @property
    def tells_first(self) -> bool:
        """`first_lsn` means something."""
        return self.error != "BEYOND_TAIL"

    @property
    def tells_applied(self) -> bool:
        """`applied_lsn` means something."""
        return self.error != "TRUNCATED"


@dataclass(frozen=True, slots=True)
class Truncate:
    """`truncated_lsn`: the effective one when OK."""

    client: str
    lsn: int
    invoked: float
    returned: float
    outcome: Outcome
    truncated_lsn: int = 0


Operation = Append | Read | Truncate


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule."""

    rule: str
    detail: str


@dataclass(slots=True)
class Verdict:
    """What the checker found, and how much it looked at."""

    violations: list[Violation] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    @property
    def ok(self) -> bool:
        """No rule is broken."""
        return not self.violations

    @property
    def rules(self) -> set[str]:
        """Names of the broken rules."""
        return {violation.rule for violation in self.violations}

    def add(self, rule: str, detail: str) -> None:
        """Note a violation; all are counted, the first of each rule are kept."""
        self.counts[f"violations {rule}"] += 1
        if self.counts[f"violations {rule}"] <= VIOLATIONS_PER_RULE_MAX:
            self.violations.append(Violation(rule, detail))


def check(operations: Iterable[Operation]) -> Verdict:
    """Apply every rule to a whole history, in any order of operations."""
    return _Checker(list(operations)).run()


class _Checker:
    def __init__(self, operations: Sequence[Operation]) -> None:
        self._verdict = Verdict()
        self._appends = {op.batch: op for op in operations if isinstance(op, Append)}
        self._reads = [op for op in operations if isinstance(op, Read)]
        self._truncates = [op for op in operations if isinstance(op, Truncate)]
        self._operations = operations
        self._base: dict[str, int] = {}
        self._seen: set[str] = set()
        self._gaps: dict[tuple[int, int], str] = {}

    def run(self) -> Verdict:
        self._count()
        self._well_formed()
        if self._verdict.violations:
            return self._verdict
        for append in self._appends.values():
            if append.outcome is Outcome.OK:
                self._place(append.batch, append.lsn, f"ack to {append.client}")
        for read in self._reads:
            self._shape(read)
            for run in read.runs:
                self._observe(read, run)
        self._verdict.counts["acked records read back"] = sum(
            self._appends[batch].count
            for batch in self._seen
            if self._appends[batch].outcome is Outcome.OK
        )
        self._overlaps()
        self._whole_batches()
        self._real_time()
        self._streams()
        self._chain()
        self._truncation()
        self._finals()
        return self._verdict

    def _count(self) -> None:
        counts = self._verdict.counts
        for append in self._appends.values():
            counts[f"appends {append.outcome.value}"] += 1
            if append.outcome is Outcome.OK:
                counts["acked records"] += append.count
        counts["reads"] = sum(not read.final for read in self._reads)
        counts["final reads"] = sum(read.final for read in self._reads)
        counts["truncates"] = len(self._truncates)
        counts["records read"] = sum(
            run.count for read in self._reads for run in read.runs if run.batch
        )

    def _well_formed(self) -> None:
        add = self._verdict.add
        appends = [op for op in self._operations if isinstance(op, Append)]
        if len(self._appends) != len(appends):
            add("MALFORMED", "a batch name was used twice")
        for op in self._operations:
            if not op.invoked <= op.returned:
                add("MALFORMED", f"returned before it was invoked: {op}")
            if isinstance(op, Append) and op.count < 1:
                add("MALFORMED", f"append without records: {op}")
            if isinstance(op, Append) and op.outcome is Outcome.OK and op.lsn < 1:
                add("MALFORMED", f"acked without an LSN: {op}")

    # --- where every batch lies -------------------------------------------------------------------

    def _place(self, batch: str, base: int, who: str) -> None:
        known = self._base.setdefault(batch, base)
        if known != base:
            self._verdict.add("DOUBLED", f"{batch} at LSN {known} and, says {who}, at {base}")

    def _observe(self, read: Read, run: Run) -> None:
        who = f"read by {read.client} on {read.replica}"
        add = self._verdict.add
        if run.gap:
            known = self._gaps.setdefault((run.lsn, run.count), run.gap)
            if known != run.gap:
                add("GAP", f"LSN {run.lsn} is a gap for {known} and, says {who}, for {run.gap}")
            if run.gap not in GAP_REASONS:
                add("GAP", f"{who}: LSN {run.lsn} is a gap for no known reason: {run.gap}")
            return
        append = self._appends.get(run.batch)
        if append is None or run.start < 0 or run.start + run.count > append.count:
            add("FOREIGN", f"{who}: {run} was never appended")
            return
        if append.outcome is Outcome.FAILED:
            add("PHANTOM", f"{who}: {run} is of an append that had definitely failed")
        if read.returned < append.invoked:
            add("FUTURE", f"{who}: {run} before its append began")
        self._place(run.batch, run.lsn - run.start, who)
        self._seen.add(run.batch)

    def _overlaps(self) -> None:
        """Two contents for one LSN: batches against batches and gaps, over everything ever said."""
        spans = [
            (base, base + self._appends[batch].count, batch) for batch, base in self._base.items()
        ]
        spans += [(lsn, lsn + count, "") for lsn, count in self._gaps]
        spans.sort()
        end, owner = 0, ""
        for low, high, batch in spans:
            if low < end and (batch or owner):
                rule = "OVERLAP"
                gap_against_record = not (batch and owner)
                record = self._appends.get(batch or owner)
                if gap_against_record and record and record.outcome is Outcome.OK:
                    rule = "GAP"
                self._verdict.add(rule, f"LSN {low}: {owner or 'gap'} and {batch or 'gap'}")
            if high > end:
                end, owner = high, batch

    def _whole_batches(self) -> None:
        """A batch in the log is there as a whole: in every final read that reaches it."""
        finals = [read for read in self._reads if read.final]
        for batch, base in self._base.items():
            count = self._appends[batch].count
            for read in finals:
                inside = min(base + count, read.applied_lsn + 1) - max(base, read.first_lsn)
                if 0 < inside < count and base >= read.first_lsn:
                    self._verdict.add("TORN", f"{batch} is cut by the end of {read.replica}")

    # --- order ------------------------------------------------------------------------------------

    def _real_time(self) -> None:
        """Descending position: nobody may begin after a higher one has returned."""
        events: list[tuple[int, float, float, str]] = []
        for batch, base in self._base.items():
            append = self._appends[batch]
            position = 2 * (base + append.count - 1)
            events.append((position, append.invoked, append.finished, batch))
        for read in self._reads:
            if read.linearizable and not read.final and read.tells_applied:
                position = 2 * read.applied_lsn + 1
                events.append((position, read.invoked, read.returned, f"read by {read.client}"))
        events.sort(key=lambda event: -event[0])
        earliest, who = math.inf, ""
        index = 0
        while index < len(events):
            position = events[index][0]
            group_earliest, group_who = earliest, who
            while index < len(events) and events[index][0] == position:
                _, invoked, returned, name = events[index]
                if invoked > earliest:
                    self._verdict.add(
                        "ORDER",
                        f"{name} at position {position / 2} began at {invoked:.6f}, after {who} "
                        f"at a higher position had returned at {earliest:.6f}",
                    )
                if returned < group_earliest:
                    group_earliest, group_who = returned, name
                index += 1
            earliest, who = group_earliest, group_who

    def _streams(self) -> None:
        by_stream: dict[str, list[Append]] = defaultdict(list)
        for append in self._appends.values():
            if append.stream:
                by_stream[append.stream].append(append)
        # What is missing above this LSN is missing indeed; below it may have been truncated unseen.
        kept = min((read.first_lsn for read in self._reads if read.final), default=math.inf)
        for stream, appends in by_stream.items():
            appends.sort(key=lambda append: append.sequence)
            failed, hole, last = "", "", 0
            for append in appends:
                base = self._base.get(append.batch)
                if base is None:
                    if not append.session:
                        continue
                    if append.outcome is Outcome.FAILED:
                        failed = append.batch
                    elif last + 1 >= kept:
                        hole = append.batch
                    continue
                if failed or hole:
                    self._verdict.add(
                        "STREAM",
                        f"{stream}: {append.batch} is in the log, not {failed or hole} before it",
                    )
                if base <= last:
                    self._verdict.add(
                        "STREAM", f"{stream}: {append.batch} at LSN {base}, not above {last}"
                    )
                last = max(last, base)

    def _chain(self) -> None:
        """All linearizable reads ordered by what was applied: what was truncated grows with it."""
        reads = [read for read in self._reads if read.linearizable and not read.error]
        reads.sort(key=lambda read: (read.applied_lsn, read.first_lsn))
        highest = 0
        for read in reads:
            if read.first_lsn < highest:
                self._verdict.add(
                    "CHAIN",
                    f"read by {read.client}: first {read.first_lsn}, applied {read.applied_lsn}; "
                    f"another had first {highest} and applied no more",
                )
            highest = max(highest, read.first_lsn)

    # --- truncation -------------------------------------------------------------------------------

    def _truncation(self) -> None:
        """first_lsn follows the acked truncations, never goes back, never runs ahead."""
        add = self._verdict.add
        done: list[tuple[float, int, str]] = []
        for op in self._truncates:
            if op.outcome is Outcome.OK:
                done.append((op.returned, op.truncated_lsn, f"truncate by {op.client}"))
                if op.truncated_lsn > op.lsn:
                    add("TRUNCATION", f"asked for {op.lsn}, truncated to {op.truncated_lsn}")
        reads = [
            read for read in self._reads if (read.linearizable or read.final) and read.tells_first
        ]
        done += [(read.returned, read.first_lsn - 1, f"read by {read.client}") for read in reads]
        self._floor(reads, sorted(done))
        asked = sorted(
            (op.invoked, op.lsn) for op in self._truncates if op.outcome is not Outcome.FAILED
        )
        most, index = 0, 0
        for read in sorted(self._reads, key=lambda read: read.returned):
            while index < len(asked) and asked[index][0] <= read.returned:
                most = max(most, asked[index][1])
                index += 1
            if read.tells_first and read.first_lsn - 1 > most:
                add(
                    "TRUNCATION",
                    f"first_lsn {read.first_lsn} on {read.replica}, at most {most} was asked for",
                )

    def _floor(self, reads: Sequence[Read], done: Sequence[tuple[float, int, str]]) -> None:
        """What was truncated when an operation began is truncated in its answer."""
        begun: list[tuple[float, int, str]] = [
            (read.invoked, read.first_lsn - 1, f"read by {read.client}") for read in reads
        ]
        begun += [
            (op.invoked, op.truncated_lsn, f"truncate by {op.client}")
            for op in self._truncates
            if op.outcome is Outcome.OK
        ]
        floor, why, index = 0, "", 0
        for invoked, truncated, who in sorted(begun):
            while index < len(done) and done[index][0] < invoked:
                if done[index][1] > floor:
                    floor, why = done[index][1], done[index][2]
                index += 1
            if truncated < floor:
                self._verdict.add(
                    "TRUNCATION", f"{who}: truncated up to {truncated}, but {why} had {floor}"
                )

    # --- answers ----------------------------------------------------------------------------------

    def _shape(self, read: Read) -> None:
        add = self._verdict.add
        who = f"read of LSN {read.lsn} by {read.client} on {read.replica}"
        if read.error == "TRUNCATED":
            if read.lsn >= read.first_lsn:
                add("SHAPE", f"{who}: TRUNCATED with first_lsn {read.first_lsn}")
            return
        if read.error == "BEYOND_TAIL":
            if read.lsn <= read.applied_lsn + 1:
                add("SHAPE", f"{who}: BEYOND_TAIL with applied_lsn {read.applied_lsn}")
            return
        if read.lsn < read.first_lsn:
            add("TRUNCATION", f"{who}: answered below first_lsn {read.first_lsn}")
        position = read.lsn
        for number, run in enumerate(read.runs):
            fits = run.lsn == position or (number == 0 and run.lsn <= position)
            if not fits or run.count < 1:
                add("SHAPE", f"{who}: {run} where LSN {position} is due")
            position = run.lsn + run.count
        if read.next_lsn != position or position > read.applied_lsn + 1:
            add(
                "SHAPE",
                f"{who}: ends at {position}, next_lsn {read.next_lsn}, applied {read.applied_lsn}",
            )
        if not read.runs and read.lsn <= read.applied_lsn:
            add("SHAPE", f"{who}: empty below applied_lsn {read.applied_lsn}")

    def _finals(self) -> None:
        """Every replica: everything acked and not truncated, and the same bounds as the others."""
        finals = [read for read in self._reads if read.final]
        acked = [op for op in self._appends.values() if op.outcome is Outcome.OK]
        for read in finals:
            if read.next_lsn != read.applied_lsn + 1 or read.lsn != read.first_lsn:
                self._verdict.add("LOST", f"the final read of {read.replica} is not complete")
            for append in acked:
                if append.lsn + append.count - 1 > read.applied_lsn:
                    self._verdict.add(
                        "LOST", f"{append.batch} at LSN {append.lsn} is not on {read.replica}"
                    )
            self._covered(read, acked)
        bounds = {(read.first_lsn, read.applied_lsn) for read in finals}
        if len(bounds) > 1:
            self._verdict.add("DIVERGED", f"final (first_lsn, applied_lsn): {sorted(bounds)}")

    def _covered(self, read: Read, acked: Sequence[Append]) -> None:
        """What the replica has at an acked batch's LSNs is that batch."""
        held = {run.batch: 0 for run in read.runs}
        for run in read.runs:
            held[run.batch] += run.count
        for append in acked:
            low = max(append.lsn, read.first_lsn)
            high = min(append.lsn + append.count - 1, read.applied_lsn)
            if high >= low and held.get(append.batch, 0) < high - low + 1:
                self._verdict.add(
                    "LOST", f"{append.batch} at LSN {append.lsn} is not whole on {read.replica}"
                )
