"""StoredRecords: the records that a replica has on its disk, with the gaps that readers would see.

Theory of operation. The log does not say which blocks were refused, but that follows from the log.
So the log is applied once more, from its installed snapshot on, by the state machine of the shard.
A block above the newest known commit index may never have been committed, and is marked. Behind an
entry that cannot be read, nobody knows which blocks were refused, so all of them are shown and
marked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from logservice_wire.errors import Reason
from logservice_wire.value import value

from logservice.entry import Entry, EntryKind
from logservice.envelope import EnvelopeCorrupt, decode_blocks
from logservice.ids import Lsn
from logservice.logdb.recovery.offline import StoredLog
from logservice.rsm.log_rsm import LogRsm
from logservice.snapshot import SnapshotCorrupt


@value
class StoredBlock:
    """A block, which has `record_count` LSNs from `first_lsn` on. block: empty with a `gap`.
    committed: whether it is known to be committed. judged: whether it is known if the block was
    refused.
    """

    first_lsn: Lsn
    record_count: int
    block: bytes | memoryview
    gap: Reason | None
    committed: bool
    judged: bool


def stored_blocks(log: StoredLog) -> Iterator[StoredBlock | str]:
    """The blocks in the order of the log, with a text for what cannot be read."""
    if log.witness:
        yield "a witness's log: it says where records are, and has none"
        return
    machine: LogRsm | None = LogRsm()
    if log.snapshot is not None:
        assert machine is not None
        try:
            machine.recover_from_snapshot(log.snapshot.state)
        except SnapshotCorrupt as error:
            machine = None
            yield f"the installed snapshot: {error}"
    for entry in log.entries():
        if isinstance(entry, str):
            machine = None
            yield entry
            continue
        gaps: dict[Lsn, Reason] = {}
        if machine is not None and not _continues(machine, entry):
            machine = None
            yield f"entry {entry.index} does not continue what is before it"
        if machine is not None:
            machine.update(entry)
            found = machine.state.rejected_between(entry.lsn, entry.next_lsn)
            gaps = {item.first_lsn: item.reason for item in found}
        yield from _blocks(
            entry, gaps, committed=entry.index <= log.commit, judged=machine is not None
        )


def _continues(machine: LogRsm, entry: Entry) -> bool:
    applied = machine.state.applied_index
    return entry.lsn == machine.state.next_lsn and applied in (0, entry.index - 1)


def _blocks(
    entry: Entry, gaps: dict[Lsn, Reason], *, committed: bool, judged: bool
) -> Iterator[StoredBlock]:
    if entry.kind is not EntryKind.BLOCK or not entry.record_count:
        return
    if gaps.get(entry.lsn) is Reason.CORRUPT_BLOCK:
        gap = Reason.CORRUPT_BLOCK
        yield StoredBlock(entry.lsn, entry.record_count, b"", gap, committed, judged)
        return
    lsn = entry.lsn
    with contextlib.suppress(EnvelopeCorrupt):
        for envelope in decode_blocks(entry.payload):
            refused = gaps.get(lsn)
            block = b"" if refused is not None else envelope.block
            yield StoredBlock(lsn, envelope.record_count, block, refused, committed, judged)
            lsn = Lsn(lsn + envelope.record_count)
