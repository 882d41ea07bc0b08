"""sealing: objects that nobody reads without a key (AES-256-GCM, in segments).

Theory of operation. A sealed object is a header and segments of SEGMENT_BYTES, each encrypted and
authenticated by itself, so that who writes it does not hold the object in memory. Each object has a
key of its own: HKDF-SHA256 of the archive's key, with 32 random bytes of the header as salt, and
with the header and the object's name as info. So no nonce is used twice with one key, and an object
under another name, or with another header, does not open. The nonce counts the segments and says
which is the last one: segments that are missing, doubled, or in another order do not open either
(the construction STREAM).

Keys have ids, and the header names its key's. A new key is a new id that is made the active one;
older objects are read with their own, so an old key is needed until the last object under it is
gone (`sealing_keys`).

INV-ARCHIVE-SEALED: what is read from a sealed object is what was sealed under that name, or an
error.

References: Hoang, Reyhanitabar, Rogaway, Vizár, Online Authenticated-Encryption and its Nonce-Reuse
Misuse-Resistance, CRYPTO 2015; RFC 5869 (HKDF).
"""

from __future__ import annotations

import os
import struct
from typing import Any, BinaryIO, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from logservice_wire.errors import InvalidArgument

from logservice.archive.damage import ArchiveDamaged
from logservice.sealing_keys import KEY_BYTES, Keys

MAGIC: Final = b"LSSEAL1\0"
_SALT_BYTES: Final = 32
_TAG_BYTES: Final = 16
_NONCE: Final = struct.Struct(">7xIB")
_INFO: Final = b"logservice archive object\0"

SEGMENT_BYTES: Final = 1024 * 1024
"""Bytes of a segment before it is encrypted; part of the format."""


class Sealing:
    """Writes a sealed object to `file`; `end` writes its last segment."""

    def __init__(self, file: Any, keys: Keys, name: str) -> None:
        """Under `name`, with the active key."""
        key_id = keys.active.encode()
        header = MAGIC + bytes([len(key_id)]) + key_id + os.urandom(_SALT_BYTES)
        self._file = file
        self._cipher = _cipher(keys.keys[keys.active], header, name)
        self._number = 0
        self._waiting = bytearray()
        file.write(header)

    def write(self, data: Any) -> None:
        self._waiting += data
        # The last segment is never empty unless the object is, so a full one waits for more.
        while len(self._waiting) > SEGMENT_BYTES:
            self._segment(SEGMENT_BYTES, last=False)

    def end(self) -> None:
        """Nothing more comes."""
        self._segment(len(self._waiting), last=True)

    def _segment(self, size: int, *, last: bool) -> None:
        nonce = _NONCE.pack(self._number, last)
        self._file.write(self._cipher.encrypt(nonce, bytes(self._waiting[:size]), None))
        del self._waiting[:size]
        self._number += 1


def unseal(file: BinaryIO, into: BinaryIO, keys: Keys, name: str) -> None:
    """Write what `file` has to `into`. Raises ArchiveDamaged for anything but a sealed object under
    that name, InvalidArgument when its key is not among `keys`.

    `into` has unverified ends of a damaged object when it raises: whoever reads it does so
    afterwards.
    """
    head = file.read(len(MAGIC) + 1)
    if len(head) != len(MAGIC) + 1 or not head.startswith(MAGIC):
        raise ArchiveDamaged(detail="no sealed object")
    key_id, salt = file.read(head[-1]), file.read(_SALT_BYTES)
    key = keys.keys.get(key_id.decode(errors="replace"))
    if key is None:
        raise InvalidArgument("its key is not among the archive's keys", field="archive.keys")
    cipher = _cipher(key, head + key_id + salt, name)
    number = 0
    segment = file.read(SEGMENT_BYTES + _TAG_BYTES)
    while True:
        after = file.read(SEGMENT_BYTES + _TAG_BYTES)
        try:
            into.write(cipher.decrypt(_NONCE.pack(number, not after), segment, None))
        except (InvalidTag, ValueError) as error:
            raise ArchiveDamaged(detail=f"segment {number} does not open") from error
        if not after:
            return
        segment = after
        number += 1


def _cipher(key: bytes, header: bytes, name: str) -> AESGCM:
    salt = header[-_SALT_BYTES:]
    info = _INFO + header + name.encode()
    return AESGCM(HKDF(SHA256(), KEY_BYTES, salt, info).derive(key))
