"""Seeded bugs of restores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from logservice import versions
from logservice.nodehost.replica import log_reading
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
def _restore_opens_before_its_end() -> None:
    def mutate(original: Any) -> Any:
        def end(self: LogRsm, command: Any) -> Any:
            promised = self.state.restoring
            if promised is not None:
                self.state.restoring = replace(promised, end_lsn=self.state.next_lsn)
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
