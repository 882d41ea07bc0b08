"""Encryption: the payload of an entry as only the holder of its segment's key can read it.

Theory of operation. Payloads of entries are all in a segment that say what users wrote, so they are
what is encrypted; headers, directories and all other records stay as they are. Hence recovery, the
scrub and the index need no key: both checksums of a record are over what lies on the disk. A
*segment key* is HKDF-SHA256 of a key of the ring, with the data directory's incarnation and the
segment's number as salt: an old segment's ciphertext means nothing in another one. AES-256-GCM
encrypts a payload with a nonce of its own, and with the record's header up to its checksums as
associated data. It becomes: nonce (12 bytes), ciphertext, tag (16 bytes).

A segment whose newest group was torn and dropped gives its number, and so its key, to the next one.
So nonces are not counted but drawn. With 2**32 of them, and a segment has room for fewer entries,
two are the same with a probability below 2**-32 (NIST SP 800-38D, 8.3).

A *label* in the header of a segment says which key of the ring is its: the tag of the key's id
(`sealing_keys`), and 8 more bytes of the HKDF, by which a key that has the right id and other bytes
is told before anything is read with it.

- INV-ENC-1: an encrypted payload opens only as the record that it was written as: the same bytes,
  entry, replica, write sequence and segment.
- INV-ENC-2: the entries of a segment are all under one key, which its label names, or all plain.

References: NIST SP 800-38D (GCM); RFC 5869 (HKDF).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from logservice.logdb.format.record import ENCRYPTED_OVERHEAD_BYTES, Buffer, RecordCorrupt
from logservice.logdb.format.segment import PLAIN, KeyLabel
from logservice.sealing_keys import KEY_BYTES, key_tag

NONCE_BYTES: Final = 12
_INFO: Final = b"logservice segment entries\0"
_SALT: Final = struct.Struct("<QQ")
_CHECK_BYTES: Final = len(PLAIN.check)

Opener = Callable[[Buffer, Buffer], bytes]
"""Takes an encrypted payload and its associated data; gives the payload, or raises RecordCorrupt.
"""


class SegmentCipher:
    """The key of one segment."""

    __slots__ = ("_cipher", "_draw", "label")

    def __init__(self, label: KeyLabel, key: bytes, draw: Callable[[int], bytes]) -> None:
        """Use `segment_cipher`."""
        self.label = label
        self._cipher = AESGCM(key)
        self._draw = draw

    def nonces(self, count: int) -> bytes:
        """Nonces for so many payloads, one behind the other."""
        return self._draw(NONCE_BYTES * count)

    def encrypt(self, nonce: bytes, payload: Buffer, associated: bytes) -> bytes:
        """What is to be written for a payload."""
        return nonce + self._cipher.encrypt(nonce, payload, associated)

    def open(self, payload: Buffer, associated: Buffer) -> bytes:
        """The payload that was encrypted. Raises RecordCorrupt when it was not encrypted with this
        key, as this record (INV-ENC-1).
        """
        if len(payload) < ENCRYPTED_OVERHEAD_BYTES:
            raise RecordCorrupt("the payload is too short to be encrypted")
        try:
            return self._cipher.decrypt(payload[:NONCE_BYTES], payload[NONCE_BYTES:], associated)
        except InvalidTag as error:
            raise RecordCorrupt("the payload does not open with the segment's key") from error


def segment_cipher(
    key_id: str, key: bytes, incarnation: int, segment: int, draw: Callable[[int], bytes]
) -> SegmentCipher:
    """What the key of the ring with that id makes of the segment. `draw` gives random bytes."""
    salt = _SALT.pack(incarnation, segment)
    derived = HKDF(SHA256(), KEY_BYTES + _CHECK_BYTES, salt, _INFO).derive(key)
    label = KeyLabel(key_tag(key_id), derived[KEY_BYTES:])
    return SegmentCipher(label, derived[:KEY_BYTES], draw)
