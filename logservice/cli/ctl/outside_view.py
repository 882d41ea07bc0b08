"""outside_view: what `logctl top` and `doctor` see of a cluster from outside.

Every store is asked whether it answers from *here*, and the first one that does is asked for a
report on the whole cluster, which it makes after the question. The addresses are those that the
caller named and those that the report has. A report from a store that reaches HAKeeper is
preferred. When no store reaches it, every store is asked for its report, and the one with the
newest view of HAKeeper counts.

All of that has one end. The report does not wait for those that stand still, and of a store for
which no time is left nothing is said.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import Final

import msgspec
from logservice_client.endpoints import parse_endpoints
from logservice_client.tls import TlsFiles
from logservice_wire.errors import InvalidArgument, LogServiceError
from logservice_wire.rpcs import GET_CLUSTER_REPORT, GET_STORE_STATUS
from logservice_wire.v1 import admin_pb2

from logservice.cli.ctl.direct_call import call_store
from logservice.cli.ctl.report_time import report_limit_s
from logservice.cli.ctl.time_left import left_s, now_s
from logservice.server.monitor.cluster.rows import ClusterReport
from logservice.server.monitor.cluster.seen import Probe, Seen

_AT_ONCE: Final = 16

_PROBE_S: Final = 3.0
"""Time-out for one store's own status, so that a dead store does not slow the answer down. A
report may take longer."""

_PROBE_LEAST_S: Final = 0.3
"""With less time left, a store beside those of the endpoints is not asked: it would look like one
that does not answer."""

_decoder = msgspec.json.Decoder(ClusterReport)


def addresses_of(endpoints: str) -> list[str]:
    """The addresses of ``host:port,...``. Raises InvalidArgument when there is none, or when one is
    malformed.
    """
    if not endpoints.strip(", "):
        raise InvalidArgument(
            "no endpoints: say --endpoints host:port,... or set LOGSERVICE_ENDPOINTS",
            field="endpoints",
        )
    return parse_endpoints(endpoints)


def view_from_outside(endpoints: str, timeout_s: float, tls: TlsFiles | None) -> Seen:
    """Ask every store, in that time altogether. A store that reports asks all stores and HAKeeper.

    Raises InvalidArgument without endpoints. Other failures are in the answer.
    """
    addresses = addresses_of(endpoints)
    ends_s = now_s() + timeout_s
    with ThreadPoolExecutor(_AT_ONCE, "look") as pool:

        def probe(address: str) -> Probe:
            return _probe(address, min(left_s(ends_s), _PROBE_S), tls)

        def probe_in_time(address: str) -> Probe | None:
            return probe(address) if ends_s - now_s() >= _PROBE_LEAST_S else None

        asked = [pool.submit(probe, one) for one in addresses]
        reports, error = _reports(asked, pool, ends_s, tls)
        report = reports[0] if reports else None
        probes = [one.result() for one in asked]
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
            probes += filter(None, pool.map(probe_in_time, others))
    return Seen(tuple(probes), report, error, tuple(reports[1:]))


def fetch(address: str, timeout_s: float, tls: TlsFiles | None, *, made_now: bool) -> ClusterReport:
    """The report of the store at `address`. `made_now`: it must be made after this call.

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
    asked: Sequence[Future[Probe]], pool: ThreadPoolExecutor, ends_s: float, tls: TlsFiles | None
) -> tuple[list[ClusterReport], str]:
    """The reports, the best first, or an error when there is none.

    One report is enough if it has HAKeeper's present answer; else every store is asked.
    """
    first = next((one.result() for one in as_completed(asked) if not one.result().error), None)
    if first is None:
        return [], asked[0].result().error

    def ask(address: str) -> ClusterReport | str:
        try:
            return fetch(address, report_limit_s(left_s(ends_s)), tls, made_now=True)
        except LogServiceError as failed:
            return str(failed)

    answers = [ask(first.address)]
    found = [one for one in answers if not isinstance(one, str)]
    if not found or found[0].cluster.hakeeper_error:
        others = [one.result() for one in asked]
        answers += pool.map(ask, [one.address for one in others if not one.error and one != first])
        found = [one for one in answers if not isinstance(one, str)]
    error = next((one for one in reversed(answers) if isinstance(one, str)), "")
    return sorted(found, key=_worth), error if not found else ""


def _worth(report: ClusterReport) -> tuple[bool, bool, float]:
    """The sort key of a report: HAKeeper's present answer is best, then the newest remembered one,
    then one of unknown age, then none.
    """
    row = report.cluster
    age_s = row.hakeeper_age_s if row.hakeeper_age_s >= 0 else math.inf
    return bool(row.hakeeper_error), row.phase == "unknown", age_s
