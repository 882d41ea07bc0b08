"""AddressBook: where the stores are, and which of them run HAKeeper, across restarts.

Theory of operation. Every heartbeat's answer carries the store directory and shard 0's membership.
A store keeps the newest of both in a remembered file, so that after everything was down it finds
shard 0 even if none of shard 0's first members is left. The configuration only names where the
search begins on the very first start. A configured address also stays beside the learned one for
good, and is tried where the learned one leads nowhere: all stores may have been moved while
everything was down, and then the configuration alone knows where they are.

The stores that the configuration names may all run no replica of shard 0 any more, or not lead it.
So a store that has never heard from HAKeeper goes where they say that its leader is (`follow`),
until it has been answered. A store that was away does not know where a store is that joined
meanwhile; if that one leads shard 0, nobody else takes its heartbeat, from whose answer it would
learn it. So where nothing else says where such a member is (`lacks_way_to`), it asks those that it
believes.

Of several copies the one with the newest membership counts. The file is never the proof of anything
but `knows_hakeeper`: this store has been part of a cluster that was already bootstrapped, so it
must not bootstrap one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from logservice.hakeeper.commands.replies import DirectoryEntry
from logservice.hakeeper.commands.wire_types import MembershipBytes
from logservice.ids import StoreId
from logservice.membership import Membership, MembershipCorrupt, decoded
from logservice.nodehost.agent.remembered_file import Copy, PageForm, RememberedFile
from logservice.nodehost.transport.seam import PeerIdentity

logger = logging.getLogger(__name__)

_VERSION = b"\x01"


class _Page(Struct, array_like=True, forbid_unknown_fields=True):
    stores: tuple[DirectoryEntry, ...] = ()
    hakeeper: MembershipBytes = b""


_FORM = PageForm("the address book", _VERSION, _Page, lambda page: decoded(page.hakeeper))


class AddressBook:
    """One per store. `seeds`: store -> peer address, from the configuration."""

    def __init__(self, copies: Sequence[Copy], seeds: Mapping[StoreId, str]) -> None:
        """Raises OSError when a copy cannot be read and no other says that HAKeeper is known."""
        self._file = RememberedFile(_FORM, copies)
        self._seeds = dict(seeds)
        self._page = _Page()
        self._followed: dict[StoreId, str] = {}
        for page in self._file.found:
            if page != _Page() and (
                self._page == _Page()
                or decoded(page.hakeeper).change_epoch > self.hakeeper.change_epoch
            ):
                self._page = page
        if self._file.unread is not None and not self.knows_hakeeper:
            raise self._file.unread

    @property
    def knows_hakeeper(self) -> bool:
        """This store has heard from a running HAKeeper."""
        return bool(self._page.hakeeper)

    @property
    def hakeeper(self) -> Membership:
        """Shard 0's newest membership heard of; empty when none was."""
        return decoded(self._page.hakeeper)

    def add_copy(self, copy: Copy) -> None:
        """Keep a copy there, too."""
        self._file.add(copy, self._page)

    def drop_copy(self, path: str) -> None:
        """Keep none there any more."""
        self._file.drop(path)

    def enrolled(self, peer: PeerIdentity) -> bool:
        """See `peers.requests.Directory`. The configuration may name a store that was forgotten: it
        counts until HAKeeper has said who belongs to the cluster, and for members of shard 0.
        """
        members = {member.store_id for member in self.hakeeper.members}
        named = peer.store_id in self._seeds and (not self._page.stores or peer.store_id in members)
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
        return {
            **self._led,
            **self._seeds,
            **{store: address for store, address in known.items() if address},
        }

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
        """Stores that may run shard 0, the likeliest first: its members, then the seeds and whom
        they named.
        """
        members = [member.store_id for member in self.hakeeper.members]
        return list(dict.fromkeys([*members, *self._seeds, *self._led]))

    @property
    def _led(self) -> Mapping[StoreId, str]:
        if not self._followed or not self.knows_hakeeper:
            return self._followed
        members = {member.store_id for member in self.hakeeper.members}
        return {store: at for store, at in self._followed.items() if store in members}

    def lacks_way_to(self, store: StoreId) -> bool:
        """Whether it is a member of shard 0, and neither HAKeeper nor the configuration has said
        here where it listens for stores.
        """
        said = {entry.store for entry in self._page.stores if entry.peer_address}
        members = {member.store_id for member in self.hakeeper.members}
        return store in members - said - self._seeds.keys()

    def follow(self, leader: StoreId, address: str) -> None:
        """A store that is believed says who leads shard 0, and where that listens for stores.

        The newest counts. Once HAKeeper has answered, it counts for members of shard 0 only.
        """
        self._followed = {leader: address}

    def update(self, directory: Iterable[DirectoryEntry], hakeeper: bytes) -> list[StoreId]:
        """Take in what a heartbeat's answer says; returns the stores whose peer address changed.

        An older membership of shard 0 than the known one is ignored. The file is written only when
        something changed.
        """
        before = self.peer_addresses()
        entries = tuple(sorted(directory, key=lambda entry: entry.store))
        self._take(_Page(entries, self._newer(hakeeper)))
        after = self.peer_addresses()
        return [store for store, address in sorted(after.items()) if before.get(store) != address]

    def learn_hakeeper(self, hakeeper: bytes) -> None:
        """Take in shard 0's membership, unless it is older than the known one."""
        self._take(_Page(self._page.stores, self._newer(hakeeper)))

    def _newer(self, hakeeper: bytes) -> bytes:
        try:
            if decoded(hakeeper).change_epoch >= self.hakeeper.change_epoch:
                return hakeeper or self._page.hakeeper
        except MembershipCorrupt:
            logger.warning("an answer of HAKeeper carries a damaged membership of shard 0")
        return self._page.hakeeper

    def _take(self, page: _Page) -> None:
        if page != self._page:
            self._page = page
            self._file.write(page)
