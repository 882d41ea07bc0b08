"""Seeded bugs of encrypted segments: another key in the middle of one, a key that is given up."""

from __future__ import annotations

from typing import Any

from logservice.logdb.io.segment_keys import SegmentKeys
from logservice.logdb.segment_writer import SegmentWriter
from logservice.sim.config import SimConfig
from logservice.sim.mutations.registry import mutation_in, wrap
from logservice.versions import FIRST, NEWEST, VersionRange


def _other_keys(config: SimConfig) -> None:
    config.versions, config.upgrade = VersionRange(FIRST, NEWEST), False
    config.encrypted, config.keys_interval_s = True, 1.0
    config.entry_cache_bytes = 0


@mutation_in(_other_keys)
def _segment_goes_on_under_another_key() -> None:
    def mutate(original: Any) -> Any:
        def same_key(self: SegmentWriter) -> bool:
            files = self._files
            if self.encrypts and self.position.offset and not original(self):
                self._cipher = files.keys.new_cipher(files.incarnation, self.position.segment)
            return True

        return same_key

    wrap(SegmentWriter, "_same_key", mutate)


@mutation_in(_other_keys)
def _ring_is_taken_that_lacks_a_key() -> None:
    """Until the next start nothing is missed."""
    wrap(SegmentKeys, "check", lambda _: lambda self, keys: None)
