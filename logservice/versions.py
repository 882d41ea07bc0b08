"""versions: which cluster versions this program knows, and how a store says so.

Theory of operation. A *cluster version* is a number that HAKeeper keeps. It names the formats and
the behaviour that everybody in the cluster uses. A program knows a range of cluster versions, and
stores of two neighbouring releases have at least one in common. A cluster stays at its version
while its programs are replaced, store by store. So until the version is raised, every byte that is
written to a disk, sent to a store, or held in a replicated state is what the older release writes,
and every program can be taken back. A person raises the version once all stores can do more
(`hakeeper.stores.cluster_version`). Only then is anything new written. From then on no older
program can take part.

INV-VERSION-1: nothing that a program of cluster version v could misread is written before every
store of the cluster knows a higher version and the cluster was raised to it.

A store of release 0.1.0 does not know of versions, and says nothing. Its heartbeats have a place
for labels, so a newer store says its range there. Such labels begin with LABEL_PREFIX, which no
label of a configuration may.

References: etcd's cluster version and its storage downgrade; CockroachDB's cluster settings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from logservice_wire.errors import NotReady

FIRST: Final = 1
"""The cluster version of release 0.1.0, and of every store that says nothing."""

NEWEST: Final = 2
"""The highest cluster version that this program knows."""

LABEL_PREFIX: Final = "logservice/"
"""What the names of labels begin with that the service gives itself."""

RANGE_LABEL: Final = LABEL_PREFIX + "cluster-versions"
"""The label in which a store says its range, as ``lowest-highest``."""

CLOCK_LABEL: Final = LABEL_PREFIX + "clock"
"""The label in which a store says, from cluster version 2 on, that its clock is far from what a
majority agrees on, and for as long as it is: it gives its leaderships away.
"""

WRITTEN: Final[Mapping[str, Mapping[int, int]]] = {
    "identity": {1: 2, 2: 3},
    "peer-protocol": {1: 4, 2: 4},
    "hakeeper-proposal": {1: 4, 2: 5},
    "hakeeper-reply": {1: 4, 2: 5},
    "hakeeper-state": {1: 5, 2: 6},
    "log-state": {1: 2, 2: 3},
    "access-book": {1: 1, 2: 2},
}
"""Format -> cluster version -> the version of the format that is written there. A program reads
what is written at every cluster version that it knows. A format that is not here is written in one
version at all of them (docs/formats/README.md).
"""

USED_LABEL: Final = LABEL_PREFIX + "cluster-version"
"""The label in which a store says what its data directories are written for, above FIRST."""

_RANGE: Final = re.compile(r"([1-9][0-9]{0,8})-([1-9][0-9]{0,8})")


@dataclass(frozen=True, slots=True)
class VersionRange:
    """The cluster versions that a program knows, both ends included."""

    lowest: int = FIRST
    highest: int = NEWEST

    def __contains__(self, version: int) -> bool:
        return self.lowest <= version <= self.highest

    def __str__(self) -> str:
        return f"{self.lowest} to {self.highest}"

    def written(self, name: str) -> frozenset[int]:
        """The versions of a format that are written at these cluster versions."""
        return frozenset(number for version, number in WRITTEN[name].items() if version in self)

    def labels(self) -> dict[str, str]:
        """How a store says this range. A program that knows the first version only says nothing."""
        if self.highest == FIRST:
            return {}
        return {RANGE_LABEL: f"{self.lowest}-{self.highest}"}


KNOWN: Final = VersionRange()
"""What this program knows."""

ONLY_FIRST: Final = VersionRange(FIRST, FIRST)
"""The range of release 0.1.0."""


def said(labels: Mapping[str, str]) -> VersionRange:
    """The range that a store's labels say; that of release 0.1.0 when they say none."""
    found = _RANGE.fullmatch(labels.get(RANGE_LABEL, ""))
    if found is None:
        return ONLY_FIRST
    return VersionRange(int(found[1]), int(found[2]))


def used_labels(version: int) -> dict[str, str]:
    """How a store says what its data directories are written for; FIRST needs no word."""
    return {} if version == FIRST else {USED_LABEL: str(version)}


def used(labels: Mapping[str, str]) -> int:
    """The cluster version that a store's data directories are written for, by its labels."""
    word = labels.get(USED_LABEL, "")
    return int(word) if word.isdecimal() and len(word) < 10 else FIRST


def cluster_version_of(name: str, number: int) -> int:
    """The first cluster version at which that version of a format is written; 0 for none."""
    return min((at for at, found in WRITTEN[name].items() if found == number), default=0)


def too_early(version: int, needed: int) -> NotReady:
    """The error for what the cluster can do only once its version is `needed`."""
    return NotReady(
        f"the cluster is at version {version}, and this needs version {needed}: "
        "upgrade every store, then `logctl upgrade raise`",
        cluster_version=version,
        needed=needed,
    )


class KnownVersion:
    """The cluster version as one store may use it. It never falls: a store that restarts begins at
    what its data directories say, and an answer that is late names a lower one.

    `settled`: HAKeeper said that the cluster works at this version. Until then the cluster may be
    at a higher one: a new cluster takes its version when its first shards are placed, and a store
    hears of it with its next heartbeat.
    """

    def __init__(self, version: int = FIRST, *, settled: bool = False) -> None:
        self._version = version
        self.settled = settled

    @property
    def value(self) -> int:
        """The cluster version that this store may use."""
        return self._version

    def learn(self, version: int) -> bool:
        """Take in what HAKeeper says; whether that was news."""
        if version <= self._version:
            return False
        self._version = version
        return True

    def need(self, needed: int) -> None:
        """Raises NotReady below that version: older programs do not understand what is wanted."""
        if self._version < needed:
            raise self.too_early(needed)

    def too_early(self, needed: int) -> NotReady:
        """The error for what needs a higher version. Only of a settled one it says `needed`, which
        is a person's business; otherwise another attempt may succeed.
        """
        if self.settled:
            return too_early(self._version, needed)
        return NotReady(
            f"the store has not heard yet whether the cluster is at version {needed}",
            cluster_version=self._version,
        )
