"""seen: what somebody saw of a cluster, as the diagnosis takes it.

`logctl` looks from outside: it asks every store whether it answers there, and prefers the report of
a store that reaches HAKeeper (`cli.ctl.outside_view`). A store's page looks from inside and has its
own report only. What a store says of itself is taken from its own report when the others do not
reach it.
"""

from __future__ import annotations

from dataclasses import dataclass

from logservice.server.monitor.cluster.rows import ClusterReport, StoreRow


@dataclass(frozen=True, slots=True)
class Probe:
    """One store that was asked from outside. error: empty when it answered."""

    address: str
    store: str
    error: str


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen. probes: none when nobody looked from outside. report: None when no store could
    give one, and `error` is the last failure.
    """

    probes: tuple[Probe, ...]
    report: ClusterReport | None
    error: str
    others: tuple[ClusterReport, ...] = ()
    """The reports of the other stores, when `report` does not have HAKeeper's present answer."""

    def rows(self) -> list[StoreRow]:
        """The stores of the report. A store that did not answer the reporting one is shown by its
        own report.
        """
        own = {
            row.store: row
            for report in self.others
            for row in report.stores
            if row.store == report.cluster.asked_store
        }
        stores = self.report.stores if self.report is not None else ()
        return [row if row.answers else own.get(row.store, row) for row in stores]
