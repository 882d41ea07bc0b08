"""Zones: where stores are, in the words of their labels.

Theory of operation. A store names its zone by the label `zone`: a rack, a room, a data centre,
whatever fails as a whole. A label `region` stands in front of it, so that the zones `a` of two
regions are two zones; a store that names a region alone has the region as its zone. A store that
names neither has no zone, which is the empty text. This file alone reads those labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from logservice.hakeeper.state import StoreState

NO_ZONE: Final = ""


def zone_of_labels(labels: Mapping[str, str]) -> str:
    """The zone that labels name: ``region/zone``, or the one of the two that is there."""
    region, zone = labels.get("region"), labels.get("zone")
    return f"{region}/{zone}" if region and zone else region or zone or NO_ZONE


def zone_of(store: StoreState) -> str:
    """The store's zone; NO_ZONE when its labels name none."""
    return zone_of_labels(store.labels)


def is_in(zone: str, wanted: str) -> bool:
    """Whether a store of `zone` is where `wanted` says: in that zone, in the zone of that name in
    any region, or anywhere in that region. Nothing is in NO_ZONE.
    """
    return bool(zone and wanted) and wanted in (zone, *zone.split("/", 1))
