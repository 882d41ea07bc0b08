"""Decisions: how the worker's newest visit of each replica ended, and what it freed there.

The counts by `Step` say how often something happens in a store; people ask about one log. So the
worker notes one `Decision` a replica and replaces it at each visit: its size does not grow with
time, and a visit that finds nothing to do costs one small object. Nothing is decided by it.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import Final

from logservice.clock import Clock
from logservice.ids import ReplicaId, ShardId

ReplicaKey = tuple[ShardId, ReplicaId]

_ERROR_CHARACTERS_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Decision:
    """The newest visit of one replica. install, export: how its halves ended (`steps.Step`);
    export is empty where there was no second half. at_s: when, by the monotonic clock. error: why
    the newest half that failed did, empty when none failed in this visit. freed_bytes: of the
    entries behind which snapshots were installed here, since the store started.
    """

    install: str = ""
    export: str = ""
    at_s: float = 0.0
    error: str = ""
    freed_bytes: int = 0


_NONE: Final = Decision()


class Decisions:
    """Those of one data directory's worker."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._newest: dict[ReplicaKey, Decision] = {}
        self._errors: dict[ReplicaKey, str] = {}
        """Of the visits under way."""

    def of(self, key: ReplicaKey) -> Decision:
        """The newest visit of a replica, with `install` empty when there was none."""
        return self._newest.get(key, _NONE)

    def failed(self, key: ReplicaKey, error: Exception) -> None:
        """A half of the visit under way failed."""
        self._errors[key] = f"{type(error).__name__}: {error}"[:_ERROR_CHARACTERS_MAX]

    def freed(self, key: ReplicaKey, size: int) -> None:
        """A snapshot was installed, and so many bytes of entries lie behind it."""
        known = self.of(key)
        self._newest[key] = replace(known, freed_bytes=known.freed_bytes + size)

    def visited(self, key: ReplicaKey, steps: Sequence[str]) -> None:
        """A visit ended; `steps`: its first half, and its second if it had one."""
        self._newest[key] = Decision(
            install=steps[0],
            export=steps[1] if len(steps) > 1 else "",
            at_s=self._clock.monotonic(),
            error=self._errors.pop(key, ""),
            freed_bytes=self.of(key).freed_bytes,
        )

    def exported(self, key: ReplicaKey, step: str) -> None:
        """An export between two visits ended."""
        error = self._errors.pop(key, "")
        self._newest[key] = replace(
            self.of(key), export=step, at_s=self._clock.monotonic(), error=error
        )

    def keep_only(self, stored: Container[ReplicaKey]) -> None:
        """Forget the replicas that have no data here any more."""
        for key in [key for key in self._newest if key not in stored]:
            del self._newest[key]
        self._errors.clear()  # of visits that were cancelled
