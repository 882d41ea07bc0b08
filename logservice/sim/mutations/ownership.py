"""Seeded bugs in what belongs to whom: sessions, writers and holds of other identities."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from logservice.owner import Claim
from logservice.rsm.log_rsm import LogRsm
from logservice.rsm.sessions import Session
from logservice.rsm.state import LogState
from logservice.sim.mutations.registry import mutation, wrap


@mutation
def _sessions_are_open_to_who_knows_the_nonce() -> None:
    def is_of(self: Session, claim: Claim) -> bool:
        return claim.nonce == self.nonce

    wrap(Session, "is_of", lambda _: is_of)


@mutation
def _writer_epoch_serves_every_identity() -> None:
    def admits(self: LogState, epoch: int, owner: bytes) -> bool:
        return epoch == self.writer_epoch and (epoch == 0 or self.writer_holder != "")

    wrap(LogState, "admits", lambda _: admits)


@mutation
def _anybody_gives_the_writer_epoch_back() -> None:
    wrap(LogState, "writer_is_of", lambda _: lambda *_: True)


@mutation
def _anybody_releases_a_hold() -> None:
    def mutate(original: Any) -> Any:
        def release(self: LogRsm, command: Any) -> Any:
            return original(self, replace(command, override=True))

        return release

    wrap(LogRsm, "_release_hold", mutate)
