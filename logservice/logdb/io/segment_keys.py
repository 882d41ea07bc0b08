"""SegmentKeys: which key each segment of one log is under, with the ring that has them.

The tags of the segments that exist are found at the opening (`recovery.key_check`), those of new
ones are noted when they are begun; so all of them are known, also of a segment whose header was
damaged since. A ring that lacks a key which a segment needs is not taken: nothing that is read
later finds a key missing, and nobody takes a missing key for damage (INV-ENC-3).

- INV-ENC-3: a key that is not there, or is another one than its id says, is a typed error that
  names it, never damage.

Not thread-safe; an opener may be called on any thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from logservice_wire.errors import InvalidArgument

from logservice.logdb.format.encryption import Opener, SegmentCipher, segment_cipher
from logservice.logdb.format.record import ENCRYPTED_OVERHEAD_BYTES, Buffer
from logservice.sealing_keys import Keys, key_tag

PLAIN_NAME: Final = "plain"
"""Stands for the key of segments whose entries are not encrypted."""

UNKNOWN: Final = -1
"""In the place of a tag: the segment has one that its header does not say, and no key fits."""


class KeysMissing(InvalidArgument):
    """Entries are encrypted with keys that are not there."""

    def __init__(self, what: str) -> None:
        """`what` names the keys."""
        super().__init__(f"entries are encrypted, and {what}", field="storage.keys")


class SegmentKeys:
    """The keys of one log's segments. Without a ring, what is encrypted cannot be opened."""

    def __init__(
        self,
        keys: Keys | None = None,
        draw: Callable[[int], bytes] = os.urandom,
        *,
        unopened: bool = False,
    ) -> None:
        """`draw` gives random bytes. unopened: what is encrypted is given as it is; for those who
        look at checksums alone.
        """
        self.ring = keys
        self.tags: dict[int, int] = {}
        """Of segments that exist, or are on their way to the disk. 0, or none: it is plain."""
        self._refused: set[int] = set()
        self._draw = draw
        self._unopened = unopened
        self._ciphers: dict[int, SegmentCipher] = {}
        self._ids = _ids(keys)
        self.active_tag = key_tag(keys.active) if keys is not None else 0
        """The tag of the key for new segments; 0 when they are plain."""

    def new_cipher(self, incarnation: int, segment: int) -> SegmentCipher:
        """The cipher of a segment that is begun with the active key."""
        assert self.ring is not None  # whoever asks knows
        return self._derived(self.ring.active, incarnation, segment)

    def cipher(self, incarnation: int, segment: int) -> SegmentCipher | None:
        """The cipher of a segment; None when it is plain, or its key is not in the ring."""
        found = self._ciphers.get(segment)
        key_id = self._ids.get(self.tags.get(segment, 0))
        if found is None and key_id is not None and segment not in self._refused:
            found = self._ciphers[segment] = self._derived(key_id, incarnation, segment)
        return found

    def candidates(self, incarnation: int, segment: int) -> list[SegmentCipher]:
        """What the segment's cipher is with each key of the ring."""
        return [self._derived(key_id, incarnation, segment) for key_id in self._ids.values()]

    def opener(self, incarnation: int, segment: int) -> Opener | None:
        """Opens the payloads of a segment; None: they are plain. One that cannot raises KeysMissing
        when it is used.
        """
        if not self.tags.get(segment):
            return None
        if self._unopened:
            return _as_it_is
        cipher = self.cipher(incarnation, segment)
        if cipher is not None:
            return cipher.open
        what = self.name(self.tags.get(segment, 0))

        def missing(payload: Buffer, associated: Buffer) -> bytes:
            raise KeysMissing(f"no key that was given opens segment {segment:x} ({what})")

        return missing

    def overhead(self, segment: int) -> int:
        """By so much a payload is longer in the segment than it was when it came."""
        return ENCRYPTED_OVERHEAD_BYTES if self.tags.get(segment) else 0

    def name(self, tag: int) -> str:
        """A key for people: its id, or its tag when it is not in the ring."""
        if tag == UNKNOWN:
            return "unknown"
        return self._ids.get(tag, f"tag {tag:08x}") if tag else PLAIN_NAME

    def begun(self, segment: int, cipher: SegmentCipher | None) -> None:
        """A segment is to be written with that cipher."""
        self.tags[segment] = cipher.label.tag if cipher is not None else 0
        self._ciphers.pop(segment, None)
        if cipher is not None:
            self._ciphers[segment] = cipher

    def refuse(self, segment: int) -> None:
        """The ring's key of that id is not the segment's."""
        self._refused.add(segment)
        self._ciphers.pop(segment, None)

    def forget(self, segment: int) -> None:
        """The segment is no more."""
        self.tags.pop(segment, None)
        self._refused.discard(segment)
        self._ciphers.pop(segment, None)

    def check(self, keys: Keys) -> None:
        """Raises KeysMissing when a key that a segment needs is not in that ring, or is another one
        there.
        """
        if self.ring is None:
            return
        needed = set(self.tags.values())
        for key_id, key in self.ring.keys.items():
            if key_tag(key_id) not in needed:
                continue
            if key_id not in keys.keys:
                raise KeysMissing(f"segments need the key {key_id}, which is not in the ring")
            if keys.keys[key_id] != key:
                raise KeysMissing(f"the ring has another key {key_id} than segments have")

    def replace(self, keys: Keys) -> None:
        """Another ring from now on; its active key is that of segments that are begun from now on.
        Raises KeysMissing, and changes nothing, as `check`.
        """
        self.check(keys)
        self.ring, self._ids, self.active_tag = keys, _ids(keys), key_tag(keys.active)

    def _derived(self, key_id: str, incarnation: int, segment: int) -> SegmentCipher:
        assert self.ring is not None
        key = self.ring.keys[key_id]
        return segment_cipher(key_id, key, incarnation, segment, self._draw)


def _ids(keys: Keys | None) -> dict[int, str]:
    return {} if keys is None else {key_tag(key_id): key_id for key_id in keys.keys}


def _as_it_is(payload: Buffer, associated: Buffer) -> bytes:
    return bytes(payload)
