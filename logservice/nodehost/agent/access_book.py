"""AccessBook: the access list as this store knows it, across restarts.

Theory of operation. The answer of a heartbeat carries the list when it has changed; the book keeps
the newest one in memory, and in one small file per data directory, because a store must be able to
serve after a restart when HAKeeper cannot be reached: the shards do not need it, and an access list
that vanished with a power cut would stop them all.

INV-ACCESS-1: without a list nobody is granted anything. A missing or damaged file is an empty list.

Until the first heartbeat after a restart is answered the list may be older than shard 0's; so it is
for as long as a store is cut off from HAKeeper. From then on it is in force within two heartbeats.

Bytes: crc32 of the rest (u32, little-endian), version byte, MessagePack.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from logservice.access import AccessList, Grant
from logservice.checksum import crc32
from logservice.hakeeper.proposals import AccessGrant
from logservice.hakeeper.wire_types import Natural
from logservice.logdb.io.vfs import Vfs, read_file, write_file

logger = logging.getLogger(__name__)

_CRC = struct.Struct("<I")
_VERSION = b"\x01"


class _Page(Struct, array_like=True, forbid_unknown_fields=True):
    version: Natural = 0
    grants: tuple[AccessGrant, ...] = ()


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Page)


class AccessBook:
    """One per store."""

    def __init__(self, places: Sequence[tuple[Vfs, str]]) -> None:
        """Read the files at `places` that are there and whole; the newest one counts."""
        self._places = tuple(places)
        newest = _Page()
        for vfs, path in self._places:
            try:
                page = _decode(read_file(vfs, path)) if vfs.exists(path) else _Page()
            except OSError as error:
                logger.warning("the access list %s cannot be read: %s", path, error)
                continue
            if page.version > newest.version:
                newest = page
        self.list = _list(newest)
        """The list in force here."""

    def update(self, version: int, grants: Sequence[AccessGrant]) -> None:
        """Take in what a heartbeat's answer says; where writing fails it holds until the end."""
        page = _Page(version, tuple(grants))
        self.list = _list(page)
        logger.info("access list %d is in force: %d grants", version, len(page.grants))
        for vfs, path in self._places:
            try:
                write_file(vfs, path, _encode(page))
            except OSError as error:
                logger.warning("the access list %s cannot be written: %s", path, error)


def _list(page: _Page) -> AccessList:
    grants = [Grant(one.identity, one.scope, one.roles) for one in page.grants]
    return AccessList(page.version, grants)


def _encode(page: _Page) -> bytes:
    body = _VERSION + _encoder.encode(page)
    return _CRC.pack(crc32(body)) + body


def _decode(data: bytes) -> _Page:
    body = data[_CRC.size :]
    if len(data) < _CRC.size or _CRC.unpack_from(data)[0] != crc32(body):
        logger.warning("the stored access list is damaged; nobody is granted anything by it")
        return _Page()
    try:
        if body[:1] != _VERSION:
            raise ValueError(f"version {body[:1].hex()}")
        return _decoder.decode(body[1:])
    except (msgspec.MsgspecError, ValueError) as error:
        logger.warning("the stored access list cannot be read: %s", error)
        return _Page()
