"""Recovery: from files to the state of every replica.

1. *Base*: the derived index, if it fits the files; else nothing (all segments are read).
2. *Scan* the segments from the base's position on (`segment_scan`).
3. *Judge* what does not verify. At most one group was ever un-synced (INV-GROUP-2), so:
   - a damaged group, or garbage, with nothing written after it is **torn**: never acked (or inside
     the stated window before the durable mark), dropped whole. Only the newest file can end with
     one: the file after it was made for a later group;
   - a damaged group with a successor was durable: **corruption** of what may have been acked. Its
     directory says whose it was; damage that cannot be attributed makes every replica faulty. A
     successor names its predecessor, so garbage behind a torn point of an earlier life is known as
     such.
4. *Resolve* each replica: newest record of each kind; entries from the newest run backwards
   (`resolve`).
5. Make durable what is kept, cut what is dropped, go on in a new segment: never behind a torn
   point.

Two things besides the groups tell of groups that are gone. From cluster version 2 on they do not
lie where the groups lie: the durable mark (`mark_file`) says up to where all was durable, and the
newest segment says where each older one ends (`segment_ends`).

Bytes that the disk can no longer read (`survey`) are damage like flipped bits, with one difference:
a torn write leaves bytes that can be read, so unreadable bytes are no sign of one.

- INV-REC-4: unreadable bytes are never a reason to call a group torn, or to end the log there. The
  newest group is torn only if all of it could be read, together with the header of a group that may
  follow. The log ends only where the header of a next group could be read and is none. Otherwise an
  acked group of an unknown owner may be there, and the place is kept as it is.
- INV-REC-5: segments of which no group verifies are no empty log, unless an index says that they
  are new: the index exists before the first group does. What they held is an unattributed loss.
- INV-REC-3: recovery writes nothing before it has decided everything; run twice it decides the
  same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from logservice.hard_state import HardState
from logservice.ids import NO_REPLICA
from logservice.logdb.checkpoint.checkpoint import CheckpointUnusable, LogPosition
from logservice.logdb.format.commit_group import (
    FLAG_MARK,
    GROUP_HEADER_BYTES,
    NO_GROUP,
    GroupHeader,
    GroupPosition,
    RecordRun,
    decode_group_header,
    group_bytes,
)
from logservice.logdb.format.durable_mark import DurableMark
from logservice.logdb.format.fault import Fault
from logservice.logdb.format.record import INSTALLED, RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES
from logservice.logdb.format.segment import decode_segment_header, segment_name
from logservice.logdb.format.segment_scan import (
    DamagedRun,
    Hole,
    ScannedGroup,
    SegmentScan,
    scan_segment,
)
from logservice.logdb.index.replica_state import Key, ReplicaState
from logservice.logdb.io.survey import Survey
from logservice.logdb.recovery.resolve import Damage, resolve
from logservice.logdb.recovery.segment_ends import NOBODY, known_ends


@dataclass(slots=True)
class RecoveryReport:
    """What recovery found. rebuilt: why the derived index was not used, empty if it was.

    unreadable_bytes: of the segments, what the disk did not give. newly_faulty: replicas of which
    more is damaged than their mark on disk says.
    """

    rebuilt: str = ""
    segments_scanned: int = 0
    groups: int = 0
    bytes_scanned: int = 0
    torn_bytes: int = 0
    unreadable_bytes: int = 0
    damages: list[Damage] = field(default_factory=list)
    newly_faulty: list[Key] = field(default_factory=list)

    @property
    def unattributed_loss(self) -> bool:
        """Something was lost, and nobody can say whose it was: perhaps all of a replica."""
        return any(damage.key is None and not damage.harmless for damage in self.damages)


@dataclass(frozen=True, slots=True)
class Witness:
    """What a derived index proves although it does not fit the segments (INV-CKPT-1). Its last
    group was durable, so that group is never torn; and each replica had at least what the index
    says of it. through: the earliest place at which the groups of that group's segment end; a
    durable mark costs nobody anything. owned: hard states and last indexes, before write sequence
    `next`.
    """

    last: GroupPosition = NO_GROUP
    through: int = 0
    next: int = 0
    owned: Mapping[Key, tuple[HardState, int]] = field(default_factory=dict)

    def with_mark(self, mark: DurableMark | None, position: LogPosition) -> Witness:
        """And what the durable mark proves, if the base, which ends at `position`, does not know it
        already. The mark is a witness of the last group alone.
        """
        if mark is None:
            return self
        place = mark.place
        ends = max((position.segment, position.offset), (self.last.segment, self.last.offset))
        if place < ends or place == (self.last.segment, self.last.offset):
            return self
        return replace(self, last=mark.last, through=mark.last.offset + 1)

    @classmethod
    def of(cls, base: tuple[LogPosition, dict[Key, ReplicaState]]) -> Witness:
        """Before `recover` is given the base, whose states it changes."""
        position, states = base
        last = position.last
        through = position.offset if position.segment == last.segment else last.offset + 1
        if last == NO_GROUP:
            through = 0
        elif through == last.offset + group_bytes(0, 0):
            through = last.offset
        owned = {
            key: (one.hard_state, one.index.last_index)
            for key, one in states.items()
            if one.exists or one.removed
        }
        return cls(last, through, position.next_write_sequence, owned)


@dataclass(slots=True)
class Recovered:
    """The outcome. position: where the next group goes. seal: segment -> where the part of it that
    is kept ends. hiding: those of them that may hold more behind it (INV-REC-4). empty: segments to
    remove. unmarked: as far as can be told the newest group is no durable mark. Then one has to
    follow: damage to that group would look like a torn write until something is written (G6).
    ends: the last group of segments, as far as it is known.
    """

    states: dict[Key, ReplicaState]
    position: LogPosition
    report: RecoveryReport
    seal: dict[int, int]
    hiding: set[int]
    empty: list[int]
    unmarked: bool
    ends: dict[int, GroupPosition]


def check_base(survey: Survey, base: tuple[LogPosition, dict[Key, ReplicaState]]) -> None:
    """Raise CheckpointUnusable unless every place that the base names exists.

    What cannot be read contradicts nothing: the index then knows what the segments cannot tell any
    more, above all whose the unreadable bytes are.
    """
    files = survey.files
    position, states = base
    if position.offset and position.segment not in files.sizes:
        raise CheckpointUnusable(f"{segment_name(position.segment)} is missing")
    if position.offset > files.sizes.get(position.segment, position.offset):
        raise CheckpointUnusable(f"{segment_name(position.segment)} is too short")
    for state in states.values():
        places = {chunk.segment for chunk in state.index.chunks}
        places |= {origin.segment for origin in state.origins.values()}
        missing = places - files.sizes.keys()
        if missing:
            raise CheckpointUnusable(f"{segment_name(min(missing))} is missing")
    last = position.last
    if last != NO_GROUP and last.segment in files.sizes:
        header = _header(survey, last)
        known = header is not None and last.names(header.position)
        end = last.offset + GROUP_HEADER_BYTES
        if not known and not survey.touches(last.segment, last.offset, end):
            raise CheckpointUnusable("its last group is not in its segment")


def recover(
    survey: Survey,
    base: tuple[LogPosition, dict[Key, ReplicaState]] | None,
    why: str = "",
    witness: Witness | None = None,
    *,
    mark: DurableMark | None = None,
    index_lost: bool = False,
) -> Recovered:
    """Decide what the files say; only reads. `why` is the reason for having no base, `witness` what
    an index that is not used as the base proves; `index_lost`: no index could prove anything.
    `mark`: the durable mark in its file.

    Raises CheckpointUnusable when the segments contradict the base; call again without one. OSError
    when the disk is lost (INV-SURVEY-1).
    """
    files = survey.files
    report = RecoveryReport(rebuilt=why)
    position, states = base or (LogPosition(), {})
    scans = [
        _scan(survey, segment, position, report)
        for segment in files.ids()
        if segment >= position.segment
    ]
    report.unreadable_bytes = survey.unreadable_bytes()
    damages = report.damages
    witness = witness or Witness()
    ends = known_ends(survey)
    kept, hiding = _judge(scans, position, report, survey, witness.with_mark(mark, position), ends)
    if index_lost and not kept and not damages and _had_groups(scans, survey):
        damages.append(Damage(scans[0].segment, SEGMENT_HEADER_BYTES, "no group of it verifies"))
    if base is not None and damages and _contradicts(kept, position):
        raise CheckpointUnusable("the segments do not continue it")
    runs: dict[Key, list[RecordRun]] = {}
    damaged: dict[Key, list[DamagedRun]] = {}
    for group in kept:
        for run in group.runs:
            if run.write_sequence >= position.next_write_sequence:
                runs.setdefault((run.shard, run.replica), []).append(run)
        for bad in group.damaged:
            if (bad.row.shard, bad.row.replica) == NOBODY:
                what = "lost where older segments end"
                damages.append(Damage(bad.segment, bad.offset, what, harmless=True))
            elif bad.row.write_sequence >= position.next_write_sequence:
                damaged.setdefault((bad.row.shard, bad.row.replica), []).append(bad)
    for key in runs.keys() | damaged.keys():
        state = states.setdefault(key, ReplicaState(*key))
        known = state.fault
        damages += resolve(
            state, runs.get(key, []), damaged.get(key, []), position.next_write_sequence
        )
        if state.fault is not None and state.fault != known:
            report.newly_faulty.append(key)
    _blame_all(states, damages, report)
    _blame_forgetful(states, runs, witness, report)
    last = kept[-1] if kept else None
    # Behind the mark's segment, too, which may be lost (INV-MARK-1).
    highest = max(*files.sizes, position.segment, mark.last.segment if mark is not None else 0, 0)
    return Recovered(
        states,
        LogPosition(
            highest + 1,
            0,
            last.position if last else position.last,
            last.sequence if last else position.sequence,
            _next_write_sequence(scans, position),
        ),
        report,
        *_leftovers(scans, kept, position, hiding),
        not last.flags & FLAG_MARK if last else _unmarked(survey, position.last),
        {position.last.segment: position.last, **ends},
    )


def _next_write_sequence(scans: Sequence[SegmentScan], position: LogPosition) -> int:
    """The first one above all that were given out, also to what does not count."""
    number = position.next_write_sequence
    for scan in scans:
        for group in scan.groups():
            for run in group.runs:
                entries = len(run.columns) if run.columns is not None else 0
                top = run.write_sequence + len(run.metas) + entries
                number = max(number, top)
            for bad in group.damaged:
                number = max(number, bad.row.write_sequence + bad.row.record_count)
    return number


def _unmarked(survey: Survey, newest: GroupPosition) -> bool:
    """Whether the group that the base ends with is no durable mark."""
    header = _header(survey, newest)
    return newest != NO_GROUP and (header is None or not header.flags & FLAG_MARK)


def _header(survey: Survey, group: GroupPosition) -> GroupHeader | None:
    """A group's header, None if there is none or it does not verify."""
    if group.segment not in survey.files.sizes:
        return None
    data = survey.read(group.segment, group.offset, GROUP_HEADER_BYTES)
    seed = survey.files.seed(group.segment)
    return decode_group_header(data, group.segment, group.offset, seed, group.offset)


def _scan(
    survey: Survey, segment: int, position: LogPosition, report: RecoveryReport
) -> SegmentScan:
    files = survey.files
    start = SEGMENT_HEADER_BYTES
    if segment == position.segment:
        start = max(start, position.offset)
    head = survey.read(segment, 0, SEGMENT_HEADER_BYTES)
    decode_segment_header(head, segment, files.incarnation)
    if start >= files.sizes[segment]:
        return SegmentScan(segment, end=start)
    report.segments_scanned += 1
    report.bytes_scanned += files.sizes[segment] - start
    return scan_segment(survey.read_from(segment, start), segment, start, files.seed(segment))


def _judge(
    scans: list[SegmentScan],
    position: LogPosition,
    report: RecoveryReport,
    survey: Survey,
    witness: Witness,
    ends: dict[int, GroupPosition],
) -> tuple[list[ScannedGroup], set[int]]:
    """The groups that count, oldest first; what is corrupt goes to the report's damages. And which
    segments may hold more behind their last group. `ends`: the last groups of segments as far as
    they are known; what is found out here is added.
    """
    damages = report.damages
    kept: list[ScannedGroup] = []
    hiding: set[int] = set()
    successor: GroupPosition | None = None
    for scan in reversed(scans):
        if successor is None or successor.segment > scan.segment:
            # What followed the segment's last group is gone; a later segment may know of it.
            successor = ends.get(scan.segment, successor)
        items = _before(scan, successor)
        if successor is not None and successor.segment == scan.segment:
            ends[scan.segment] = successor
            if not _reaches(items, successor, position):
                damages.append(
                    Damage(scan.segment, successor.offset, "the last group of the segment is lost")
                )
        elif successor is None or successor.segment > scan.segment:
            newest_file = scan is scans[-1]
            if newest_file and items and _torn(items[-1], survey, witness.last):
                report.torn_bytes += items.pop().size
            if _may_hide(scan, survey, newest_file=newest_file):
                hiding.add(scan.segment)
                damages.append(Damage(scan.segment, scan.end, "a group there cannot be read"))
        for item in reversed(items):
            if isinstance(item, Hole):
                damages.append(Damage(item.segment, item.start, f"{item.size} unreadable bytes"))
                continue
            kept.append(item)
            ends.setdefault(scan.segment, item.position)
            if item.header is not None:
                successor = item.header.previous
            elif successor is None:
                successor = item.position
    kept.reverse()
    report.groups = len(kept)
    if (end := _end_of(scans, witness.last.segment)) < witness.through:
        damages.append(Damage(witness.last.segment, end, "what followed is lost"))
    _check_chain(kept, position, damages, survey.files.sizes.keys())
    return kept, hiding


def _had_groups(scans: Sequence[SegmentScan], survey: Survey) -> bool:
    """Whether something was written to segments of which nothing can be made out (INV-REC-5).

    A segment is made once the one before it has groups, and its file is zeros until the first one.
    """
    if len(scans) != 1:
        return bool(scans)
    return any(survey.read_from(scans[0].segment, SEGMENT_HEADER_BYTES))


def _end_of(scans: list[SegmentScan], segment: int) -> int:
    """Where the groups of a segment end; 0 when it is lost. A missing segment that a newer file
    follows is not lost: it may have been collected.
    """
    for scan in scans:
        if scan.segment == segment:
            return scan.end
    newest = scans[-1].segment if scans else 0
    return 0 if newest < segment else 1 << 64


def _torn(newest: ScannedGroup | Hole, survey: Survey, durable: GroupPosition) -> bool:
    """Whether the last thing in the newest file is a group that was never acked (INV-REC-4)."""
    if isinstance(newest, Hole) or newest.intact:
        return False
    at = newest.position
    if (at.segment, at.offset) <= (durable.segment, durable.offset):
        return False
    end = newest.end + GROUP_HEADER_BYTES
    return not survey.touches(newest.position.segment, newest.position.offset, end)


def _may_hide(scan: SegmentScan, survey: Survey, *, newest_file: bool) -> bool:
    """Whether behind the last group that was found there can be one that may have been acked, and
    that no later group names (INV-REC-4). Room for a durable mark alone is none: a mark acks
    nothing.
    """
    end = scan.end
    if end + group_bytes(1, RECORD_HEADER_BYTES) > survey.files.sizes[scan.segment]:
        return False
    if scan.lost_end and not newest_file:
        return True
    known_end = max(scan.lost_end, end) + GROUP_HEADER_BYTES
    return survey.touches(scan.segment, end, known_end)


def _before(scan: SegmentScan, successor: GroupPosition | None) -> list[ScannedGroup | Hole]:
    """Items of a scan that are not known to have been dropped by an earlier recovery."""
    if successor is None or successor == NO_GROUP:
        return list(scan.items)
    if scan.segment > successor.segment:
        return []
    if scan.segment < successor.segment:
        return list(scan.items)
    return [
        item
        for item in scan.items
        if (item.position.offset if isinstance(item, ScannedGroup) else item.start)
        <= successor.offset
    ]


def _reaches(
    items: list[ScannedGroup | Hole], successor: GroupPosition, position: LogPosition
) -> bool:
    """Whether the group that the successor names is among the items, in a hole, or before them."""
    if (successor.segment, successor.offset) < (position.segment, position.offset):
        return True
    if not items:
        return False
    last = items[-1]
    if isinstance(last, Hole):
        return last.end > successor.offset
    return last.position.offset == successor.offset


def _check_chain(
    kept: list[ScannedGroup],
    position: LogPosition,
    damages: list[Damage],
    existing: Collection[int],
) -> None:
    """Every group must name the one before it, unless that was collected or is damaged. And where
    no segment in between was collected, the numbers go up by one: the group that would name a lost
    one may have lost its own header.
    """
    before: ScannedGroup | None = None
    segment, sequence = position.segment, position.sequence
    for group in kept:
        following = all(one in existing for one in range(segment + 1, group.position.segment))
        if sequence and following and group.sequence > sequence + 1:
            at = group.position
            damages.append(Damage(at.segment, at.offset, "what was before it is lost"))
        segment, sequence = group.position.segment, group.sequence
        header = group.header
        if header is not None:
            previous = header.previous
            if before is None:
                expected = position.last if position.last != NO_GROUP else previous
            elif before.header is not None and previous.segment == before.position.segment:
                expected = before.position
            else:
                expected = previous
            between = any(
                damage.segment == previous.segment and damage.offset <= previous.offset
                for damage in damages
            )
            if not (previous.names(expected) or between):
                damages.append(
                    Damage(group.position.segment, group.position.offset, "broken chain")
                )
        if before is not None and group.sequence <= before.sequence:
            damages.append(
                Damage(group.position.segment, group.position.offset, "sequence out of order")
            )
        before = group


def _contradicts(kept: list[ScannedGroup], position: LogPosition) -> bool:
    """Whether the first group after the base does not continue its last one."""
    if not kept or kept[0].header is None:
        return False
    return kept[0].header.previous != position.last


def _blame_all(
    states: dict[Key, ReplicaState], damages: list[Damage], report: RecoveryReport
) -> None:
    """Damage whose replica is not known makes every replica faulty."""
    anonymous = [damage for damage in damages if damage.key is None and not damage.harmless]
    if not anonymous:
        return
    for key, state in states.items():
        if not state.removed and state.blame(Fault(str(anonymous[0]))):
            report.newly_faulty.append(key)


def _blame_forgetful(
    states: dict[Key, ReplicaState],
    runs: Mapping[Key, Sequence[RecordRun]],
    witness: Witness,
    report: RecoveryReport,
) -> None:
    """A replica that had more than the segments say has lost something, and perhaps all."""
    for key, (hard, last) in witness.owned.items():
        state = states.setdefault(key, ReplicaState(*key))
        if state.removed:
            continue
        less = not state.exists or _less(state.hard_state, hard)
        if not less and state.index.last_index < last and not _ends_later(runs, key, witness):
            if state.fault is not None:
                state.fault = state.fault.reaching(last)
            less = state.fault is None
        if less and state.blame(Fault("the derived index knows more of it than the segments")):
            report.newly_faulty.append(key)


def _ends_later(runs: Mapping[Key, Sequence[RecordRun]], key: Key, witness: Witness) -> bool:
    """Whether what was written since may have made its log shorter."""
    return any(
        run.write_sequence >= witness.next
        and (run.columns is not None or any(meta.kind is INSTALLED for meta in run.metas))
        for run in runs.get(key, ())
    )


def _less(ours: HardState, than: HardState) -> bool:
    """Whether a term or a vote of `than` is forgotten in `ours`."""
    return ours.term < than.term or (
        ours.term == than.term and than.vote not in (NO_REPLICA, ours.vote)
    )


def _leftovers(
    scans: list[SegmentScan], kept: list[ScannedGroup], position: LogPosition, hiding: set[int]
) -> tuple[dict[int, int], set[int], list[int]]:
    """(segment to seal -> where what is kept of it ends, those that may hold more behind that,
    segments to remove) at the end of the log.

    Only the newest segment is removed, and only if nothing but one torn group ever got into it: the
    process ended before its first fdatasync. Anything else that is unreadable stays as evidence.
    """
    end_segment = kept[-1].position.segment if kept else position.segment
    end_offset = kept[-1].end if kept else position.offset
    seal: dict[int, int] = {}
    empty: list[int] = []
    for scan in scans:
        if scan.segment == end_segment and end_offset:
            seal[scan.segment] = end_offset
        elif (
            scan.segment >= end_segment
            and scan is scans[-1]
            and len(scan.items) <= 1
            and scan.segment not in hiding
        ):
            empty.append(scan.segment)
    return seal, hiding, empty
