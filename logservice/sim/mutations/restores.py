"""Seeded bugs of restores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from logservice import versions
from logservice.nodehost.replica import log_reading
from logservice.outcome import Applied
from logservice.rsm.admission import ADMIT, Admission
from logservice.rsm.log_rsm import LogRsm
from logservice.rsm.state import LogState
from logservice.sim.config import SimConfig
from logservice.sim.mutations.registry import mutation_in, wrap
from logservice.versions import VersionRange


def _restored(config: SimConfig) -> None:
    config.versions = VersionRange(versions.FIRST, versions.NEWEST)
    config.restores = True
    config.upgrade = False


@mutation_in(_restored)
def _restore_opens_with_any_digest() -> None:
    def mutate(original: Any) -> Any:
        def end(self: LogRsm, command: Any) -> Any:
            promised = self.state.restoring
            digest = command.digest if promised is None else promised.digest
            return original(self, replace(command, digest=digest))

        return end

    wrap(LogRsm, "_end_restore", mutate)


@mutation_in(_restored)
def _restore_opens_with_the_digest_of_a_part() -> None:
    """What a mirror may name is taken of every restore."""

    def mutate(original: Any) -> Any:
        def end(self: LogRsm, command: Any) -> Any:
            promised = self.state.restoring
            if promised is not None and command.digest_lsn:
                command = replace(command, digest=promised.digest, digest_lsn=0)
            return original(self, command)

        return end

    wrap(LogRsm, "_end_restore", mutate)


@mutation_in(_restored)
def _restore_opens_before_its_end() -> None:
    def mutate(original: Any) -> Any:
        def end(self: LogRsm, command: Any) -> Any:
            promised = self.state.restoring
            if promised is not None:
                self.state.restoring = replace(promised, end_lsn=self.state.next_lsn)
                command = replace(command, end_lsn=self.state.next_lsn)
            answer = original(self, command)
            if self.state.restoring is not None:
                self.state.restoring = promised
            return answer

        return end

    wrap(LogRsm, "_end_restore", mutate)


@mutation_in(_restored)
def _restore_without_a_lineage() -> None:
    def mutate(_: Any) -> Any:
        def begin(self: LogState, lineage: Any, restoring: Any, epoch: int, stamp: int) -> None:
            self.lineage = replace(lineage, number=1)
            self.restoring = restoring
            self.writer_epoch = epoch

        return begin

    wrap(LogState, "begin_restore", mutate)


@mutation_in(_restored)
def _restored_blocks_land_anywhere() -> None:
    """The LSN that a block expects is not looked at: a repetition is there twice."""

    def mutate(original: Any) -> Any:
        def refuses(self: LogState, session: int, nonce: bytes, expected_lsn: Any, lsn: Any) -> Any:
            return original(self, session, nonce, lsn, lsn)

        return refuses

    wrap(LogState, "refuses_restored", mutate)


@mutation_in(_restored)
def _a_restoring_log_takes_appends() -> None:
    def mutate(original: Any) -> Any:
        def refuses(self: LogState, session: int, nonce: bytes, expected_lsn: Any, lsn: Any) -> Any:
            if self.restoring is not None and not self.is_of_restore(session, nonce):
                return None
            return original(self, session, nonce, expected_lsn, lsn)

        return refuses

    wrap(LogState, "refuses_restored", mutate)


@mutation_in(_restored)
def _a_restoring_log_is_read() -> None:
    wrap(log_reading, "check_served", lambda _: lambda rsm: None)


def _mirrored(config: SimConfig) -> None:
    _restored(config)
    config.mirrors = True


@mutation_in(_mirrored)
def _mirror_opens_at_another_range_than_was_digested() -> None:
    """A block or a truncation that came between is not noticed."""

    def mutate(original: Any) -> Any:
        def end(self: LogRsm, command: Any) -> Any:
            state = self.state
            if state.restoring is not None:
                base, whole = state.restoring.base_lsn, state.next_lsn
                command = replace(command, base_lsn=base, end_lsn=whole)
            return original(self, command)

        return end

    wrap(LogRsm, "_end_restore", mutate)


@mutation_in(_mirrored)
def _mirror_opens_without_a_fork() -> None:
    def mutate(original: Any) -> Any:
        def end(self: LogState, end_lsn: Any, next_timestamp: int) -> None:
            before = self.lineage
            original(self, end_lsn, next_timestamp)
            self.lineage = before

        return end

    wrap(LogState, "end_restore", mutate)


@mutation_in(_mirrored)
def _mirror_without_an_epoch() -> None:
    def mutate(original: Any) -> Any:
        def begin(self: LogState, lineage: Any, restoring: Any, epoch: int, stamp: int) -> None:
            original(self, lineage, restoring, 0, stamp)

        return begin

    wrap(LogState, "begin_restore", mutate)


@mutation_in(_mirrored)
def _mirror_takes_a_block_after_its_promote() -> None:
    def mutate_apply(original: Any) -> Any:
        def apply(self: LogRsm, block: Any, lsn: Any, entry: Any) -> Any:
            if self.state.restoring is None:
                return Applied(lsn=lsn, count=block.record_count)
            return original(self, block, lsn, entry)

        return apply

    def mutate_judge(original: Any) -> Any:
        def judge(self: Admission, request: Any, lsn: Any) -> Any:
            if self._rsm.state.restoring is None and request.expected_lsn == lsn:
                return ADMIT
            return original(self, request, lsn)

        return judge

    wrap(LogRsm, "_apply_restored", mutate_apply)
    wrap(Admission, "_judge_restored", mutate_judge)


@mutation_in(_mirrored)
def _mirror_truncates_what_it_does_not_have() -> None:
    def mutate(_: Any) -> Any:
        def truncate(self: LogRsm, command: Any) -> Any:
            state = self.state
            if state.restoring is not None and command.lsn > state.requested_lsn:
                state.requested_lsn = command.lsn
                state.settle_truncation()
            return Applied(lsn=state.next_lsn, value=state.truncated_lsn)

        return truncate

    wrap(LogRsm, "_truncate_mirror", mutate)


@mutation_in(_mirrored)
def _mirror_begins_below_its_base() -> None:
    """Gaps below the base, of which nobody knows, are read as records."""
    wrap(LogState, "reach_base", lambda _: lambda self, base_lsn: None)
