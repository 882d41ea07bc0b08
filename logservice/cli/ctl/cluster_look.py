"""cluster_look: what `logctl top` and `doctor` see of a cluster from outside.

Two things are asked: every store whether it answers from *here*, and one store for the report of
the whole cluster, made after it was asked. Addresses are those the caller named and those the
report knows. The report of a store that reaches HAKeeper is preferred. Where none does, every store
is asked for its report: the one with the newest view counts, and what a store says of itself is in
its own, whether the others reach it or not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import msgspec
from logservice_client.endpoints import parse_endpoints
from logservice_client.tls import TlsFiles
from logservice_wire.errors import InvalidArgument, LogServiceError
from logservice_wire.rpcs import GET_CLUSTER_REPORT, GET_STORE_STATUS
from logservice_wire.v1 import admin_pb2

from logservice.cli.ctl.direct_call import call_store
from logservice.server.monitor.cluster.rows import ClusterReport, StoreRow

_AT_ONCE = 16

_PROBE_S = 3.0
"""For one store's own status: a dead one must not slow the answer down. A report waits longer."""

_decoder = msgspec.json.Decoder(ClusterReport)


@dataclass(frozen=True, slots=True)
class Probe:
    """One store, asked from here. error: empty when it answered."""

    address: str
    store: str
    error: str


@dataclass(frozen=True, slots=True)
class OutsideView:
    """report: None when no store could give one; then `error` says what the last one said."""

    probes: tuple[Probe, ...]
    report: ClusterReport | None
    error: str
    others: tuple[ClusterReport, ...] = ()
    """What the other stores gave, where the report could not say what HAKeeper says now."""

    def rows(self) -> list[StoreRow]:
        """The stores of the report; one that does not answer the others speaks for itself."""
        own = {
            row.store: row
            for report in self.others
            for row in report.stores
            if row.store == report.cluster.asked_store
        }
        stores = self.report.stores if self.report is not None else ()
        return [row if row.answers else own.get(row.store, row) for row in stores]


def addresses_of(endpoints: str) -> list[str]:
    """The addresses of ``host:port,...``. Raises InvalidArgument when there is none, or one is no
    address.
    """
    if not endpoints.strip(", "):
        raise InvalidArgument(
            "no endpoints: say --endpoints host:port,... or set LOGSERVICE_ENDPOINTS",
            field="endpoints",
        )
    return parse_endpoints(endpoints)


def look(endpoints: str, timeout_s: float, tls: TlsFiles | None) -> OutsideView:
    """Ask every store; `timeout_s`: for the report, which asks all stores and HAKeeper in its turn.

    Raises InvalidArgument without endpoints; other failures are in what is returned.
    """
    addresses = addresses_of(endpoints)
    with ThreadPoolExecutor(_AT_ONCE, "look") as pool:

        def probe(named: Iterable[str]) -> list[Probe]:
            limit_s = min(timeout_s, _PROBE_S)
            return list(pool.map(lambda address: _probe(address, limit_s, tls), named))

        probes = probe(addresses)
        reports, error = _reports(probes, pool, timeout_s, tls)
        report = reports[0] if reports else None
        if report is not None:
            known = {one.address for one in probes}
            stores = {one.store for one in probes if not one.error}
            others = [
                row.client_address
                for row in report.stores
                if row.client_address
                and row.client_address not in known
                and row.store not in stores
            ]
            probes += probe(others)
    return OutsideView(tuple(probes), report, error, tuple(reports[1:]))


def fetch(address: str, timeout_s: float, tls: TlsFiles | None, *, made_now: bool) -> ClusterReport:
    """The report of the store at `address`; `made_now`: none from before this call.

    Raises what `call_store` raises, and InvalidArgument when the store is of another version and
    its report cannot be read.
    """
    request = admin_pb2.GetClusterReportRequest(made_now=made_now)
    found = call_store(address, GET_CLUSTER_REPORT, request, timeout_s, tls)
    try:
        return _decoder.decode(found.json)
    except msgspec.MsgspecError as problem:
        raise InvalidArgument(f"the report of {address}: {problem}", field="json") from problem


def _probe(address: str, timeout_s: float, tls: TlsFiles | None) -> Probe:
    request = admin_pb2.GetStoreStatusRequest()
    try:
        status = call_store(address, GET_STORE_STATUS, request, timeout_s, tls)
    except LogServiceError as failed:
        return Probe(address, "", str(failed))
    return Probe(address, status.store_id, "")


def _reports(
    probes: Sequence[Probe], pool: ThreadPoolExecutor, timeout_s: float, tls: TlsFiles | None
) -> tuple[list[ClusterReport], str]:
    """One is enough if it has HAKeeper's word; else everybody's, the best first."""

    def ask(address: str) -> ClusterReport | str:
        try:
            return fetch(address, timeout_s, tls, made_now=True)
        except LogServiceError as failed:
            return str(failed)

    answering = [one.address for one in probes if not one.error]
    error = next((one.error for one in probes if one.error), "")
    found: list[ClusterReport] = []
    for several in (answering[:1], answering[1:]):
        for answer in pool.map(ask, several):
            if isinstance(answer, str):
                error = answer
            else:
                found.append(answer)
        if any(not report.cluster.hakeeper_error for report in found):
            break
    return sorted(found, key=_worth), error if not found else ""


def _worth(report: ClusterReport) -> tuple[bool, bool, float]:
    """HAKeeper's own word, else the newest memory of it, else one of unknown age, else none."""
    row = report.cluster
    age_s = row.hakeeper_age_s if row.hakeeper_age_s >= 0 else math.inf
    return bool(row.hakeeper_error), row.phase == "unknown", age_s
