"""AddressBook: where the stores are, and which of them run HAKeeper, across restarts.

Theory of operation. Every heartbeat's answer carries the store directory and shard 0's membership.
A store keeps the newest of both in one small file, so that after everything was down it finds shard
0 even if none of its first members is left: what the configuration names is only where the search
begins on the very first start, and
where it goes on whenever a learned address leads nowhere: a configured address stays beside the
learned one for good, since all stores may have been moved while everything was down, and then the
configuration alone knows. Each data directory has a copy, because each may be lost; the one
with the newest membership counts.

The file is derived and replaced whole (`write_file`); a missing or damaged one is an empty book. It
is never the proof of anything but `knows_hakeeper`: this store has been part of a cluster that was
already bootstrapped, so it must not bootstrap one.

Bytes: crc32 of the rest (u32, little-endian), version byte, MessagePack.
"""

from __future__ import annotations

import functools
import logging
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct

from logservice.checksum import crc32
from logservice.hakeeper.replies import DirectoryEntry
from logservice.hakeeper.state import decoded
from logservice.hakeeper.wire_types import MembershipBytes
from logservice.ids import StoreId
from logservice.logdb.io.vfs import Vfs, read_file, write_file
from logservice.membership import Membership, MembershipCorrupt
from logservice.nodehost.threads.executor import Executor, InlineExecutor
from logservice.nodehost.transport.seam import PeerIdentity

logger = logging.getLogger(__name__)

_CRC = struct.Struct("<I")
_VERSION = b"\x01"


class _Page(Struct, array_like=True, forbid_unknown_fields=True):
    stores: tuple[DirectoryEntry, ...] = ()
    hakeeper: MembershipBytes = b""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Page)


class Copy(NamedTuple):
    """One file of the book. `executor` writes it: nothing waits for a disk that is stuck."""

    vfs: Vfs
    path: str
    executor: Executor = InlineExecutor()


class AddressBook:
    """One per store. `seeds`: store -> peer address, from the configuration."""

    def __init__(self, places: Sequence[Copy], seeds: Mapping[StoreId, str]) -> None:
        """Read the files at `places` that are there and whole.

        Raises OSError when one cannot be read and no other says that HAKeeper is known.
        """
        self._places = tuple(places)
        self._seeds = dict(seeds)
        self._page = _Page()
        unread: OSError | None = None
        for vfs, path, _ in self._places:
            try:
                page = _decode(read_file(vfs, path)) if vfs.exists(path) else _Page()
            except OSError as error:
                unread = error
                continue
            if page != _Page() and (
                self._page == _Page()
                or decoded(page.hakeeper).change_epoch > self.hakeeper.change_epoch
            ):
                self._page = page
        if unread is not None and not self.knows_hakeeper:
            raise unread

    @property
    def knows_hakeeper(self) -> bool:
        """This store has heard from a running HAKeeper."""
        return bool(self._page.hakeeper)

    @property
    def hakeeper(self) -> Membership:
        """Shard 0's newest membership heard of; empty when none was."""
        return decoded(self._page.hakeeper)

    def enrolled(self, peer: PeerIdentity) -> bool:
        """See `peer_requests.Directory`."""
        named = peer.store_id in self._seeds
        for entry in self._page.stores:
            if entry.store == peer.store_id:
                named = True
            elif not set(entry.incarnations).isdisjoint(peer.incarnations):
                return False
        return named

    @property
    def stores(self) -> frozenset[StoreId]:
        """Every store that HAKeeper says belongs to the cluster."""
        return frozenset(entry.store for entry in self._page.stores)

    def peer_addresses(self) -> dict[StoreId, str]:
        """Where every known store listens for stores; what HAKeeper said wins over the seeds."""
        known = {entry.store: entry.peer_address for entry in self._page.stores}
        return {**self._seeds, **{store: address for store, address in known.items() if address}}

    def candidates(self, store: StoreId) -> tuple[str, ...]:
        """Every address a store may listen at for stores: the learned one, then the configured."""
        learned = self.peer_addresses().get(store, "")
        return tuple(dict.fromkeys(filter(None, (learned, self._seeds.get(store, "")))))

    def client_address(self, store: StoreId) -> str:
        """Where a store listens for clients; empty when unknown."""
        for entry in self._page.stores:
            if entry.store == store:
                return entry.client_address
        return ""

    def hakeeper_stores(self) -> list[StoreId]:
        """Stores that may run shard 0, the likeliest first: its members, then the seeds."""
        members = [member.store_id for member in self.hakeeper.members]
        return list(dict.fromkeys([*members, *self._seeds]))

    def update(self, directory: Iterable[DirectoryEntry], hakeeper: bytes) -> list[StoreId]:
        """Take in what a heartbeat's answer says; returns the stores whose peer address changed.

        An older membership of shard 0 than the known one is ignored. The file is written only when
        something changed; where that fails the book is right until the process ends.
        """
        before = self.peer_addresses()
        page = _Page(tuple(sorted(directory, key=lambda entry: entry.store)), self._page.hakeeper)
        try:
            if decoded(hakeeper).change_epoch >= self.hakeeper.change_epoch:
                page.hakeeper = hakeeper or self._page.hakeeper
        except MembershipCorrupt:
            logger.warning("a heartbeat's answer carries a damaged membership of shard 0")
        if page == self._page:
            return []
        self._page = page
        for place in self._places:
            place.executor.submit(functools.partial(self._write, place))
        after = self.peer_addresses()
        return [store for store, address in sorted(after.items()) if before.get(store) != address]

    def _write(self, place: Copy) -> None:
        try:
            # The page of now: if several writes had to wait, the first brings the newest.
            write_file(place.vfs, place.path, _encode(self._page))
        except OSError as error:
            logger.warning("the address book %s cannot be written: %s", place.path, error)


def _encode(page: _Page) -> bytes:
    body = _VERSION + _encoder.encode(page)
    return _CRC.pack(crc32(body)) + body


def _decode(data: bytes) -> _Page:
    body = data[_CRC.size :]
    if len(data) < _CRC.size or _CRC.unpack_from(data)[0] != crc32(body):
        logger.warning("the address book is damaged; beginning an empty one")
        return _Page()
    try:
        if body[:1] != _VERSION:
            raise ValueError(f"version {body[:1].hex()}")
        page = _decoder.decode(body[1:])
        decoded(page.hakeeper)
    except (msgspec.MsgspecError, ValueError) as error:
        logger.warning("the address book cannot be read: %s", error)
        return _Page()
    return page
