"""app: what the admin port answers; a WSGI application without state of its own.

    /healthz     200 while the event loop answers: for a supervisor that restarts what hangs
    /readyz      200 when ready, else 503; the reasons are in the body either way
    /metrics     Prometheus
    /api/v1/...  cluster, stores, shards, operators, services, tn-shards and events (any store
                 shows all); store (this one);
                 shards/page?filter=&troubled=&sort=&descending=&offset=&count= has only the shards
                 that a page shows (`shard_page`)
    /ui          the page; what lies under /ui/ is all it loads

Everything is read-only: there are only GET and HEAD, no body, no cookie; one document has
parameters. The page may load nothing from elsewhere and run nothing inline
(Content-Security-Policy). Where callers have to say who they are, everything but the two probes
needs that, the page included (`caller`). On a loopback address a request must name a loopback host.
Else any web page could read the answers through a name of its own that resolves to this address
(DNS rebinding).
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

from logservice_wire.errors import NotReady, PermissionDenied, Unauthenticated

from logservice.server.monitor.cluster.rows import ClusterReport
from logservice.server.monitor.own.readiness import Code
from logservice.server.monitor.own.status import Reason, StoreStatus, to_json
from logservice.server.monitor.port.board import Board, LoopStuck, NotServing
from logservice.server.monitor.port.caller import Callers
from logservice.server.monitor.port.shard_page import BadQuery, ShardPages, parse

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"

_HEADERS = (
    ("Cache-Control", "no-store"),
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
        " img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)

_CHALLENGE = (("WWW-Authenticate", 'Bearer realm="logservice"'),)

PROBES = frozenset(("/healthz", "/readyz"))
"""Whoever asks these need not say who it is: supervisors cannot."""

_PAGE = {
    "/ui": ("index.html", "text/html; charset=utf-8"),
    "/ui/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/ui/app.css": ("app.css", "text/css; charset=utf-8"),
    "/ui/icon.svg": ("icon.svg", "image/svg+xml"),
}

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer. `extra`: further headers."""

    status: str
    content_type: str
    body: bytes
    extra: tuple[tuple[str, str], ...] = ()


class AdminApp:
    """The application; the WSGI server calls it in any of its threads."""

    def __init__(
        self,
        board: Board,
        metrics: Callable[[str], tuple[bytes, str]],
        *,
        loopback_only: bool,
        callers: Callers | None = None,
    ) -> None:
        """Read the page. `metrics` makes a body and its content type for an Accept header.
        `callers` says who sends a request; None: nobody's identity is known.
        """
        self._board = board
        self.callers = Callers(board) if callers is None else callers
        self._metrics = metrics
        self._loopback_only = loopback_only
        self._pages = ShardPages()
        folder = resources.files("logservice.server.monitor") / "ui"
        self._page = {
            path: Answer("200 OK", kind, (folder / name).read_bytes())
            for path, (name, kind) in _PAGE.items()
        }

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request as PEP 3333 says."""
        answer = self._answer(environ)
        headers = [
            ("Content-Type", answer.content_type),
            ("Content-Length", str(len(answer.body))),
            *_HEADERS,
            *answer.extra,
        ]
        start_response(answer.status, headers)
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else answer.body]

    def _answer(self, environ: WSGIEnvironment) -> Answer:
        if self._loopback_only and not _names_loopback(environ.get("HTTP_HOST", "")):
            return _text("421 Misdirected Request", "this port answers to loopback names only\n")
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            refused = _text("405 Method Not Allowed", "read-only\n")
            return Answer(refused.status, refused.content_type, refused.body, (("Allow", "GET"),))
        path = environ.get("PATH_INFO", "/").rstrip("/") or "/"
        try:
            if path not in PROBES:
                self.callers.let_in(environ)
            if path == "/api/v1/shards/page":
                choice = parse(environ.get("QUERY_STRING", ""))
                return _json(self._pages.page(self._board.cluster(), choice))
            return self._route(path, environ.get("HTTP_ACCEPT", ""))
        except BadQuery as bad:
            return _error("400 Bad Request", str(bad))
        except Unauthenticated as unknown:
            refused = _error("401 Unauthorized", unknown.message)
            return Answer(refused.status, refused.content_type, refused.body, _CHALLENGE)
        except PermissionDenied as denied:
            return _error("403 Forbidden", denied.message)
        except NotReady as unready:
            return _error("503 Service Unavailable", unready.message)
        except LoopStuck as stuck:
            return _error("503 Service Unavailable", str(stuck))
        except NotServing:
            return _error("503 Service Unavailable", "the store is starting")
        except Exception:  # the boundary: the process serves on, and the log says what happened
            logger.exception("the admin port failed at %s", path)
            return _error("500 Internal Server Error", "internal error; see the store's log")

    def _route(self, path: str, accept: str) -> Answer:
        if path in self._page:
            return self._page[path]
        if path == "/":
            return Answer("302 Found", _TEXT, b"", (("Location", "/ui"),))
        if path == "/healthz":
            self._board.status()
            return _text("200 OK", "ok\n")
        if path == "/readyz":
            return self._ready()
        if path == "/metrics":
            body, kind = self._metrics(accept)
            return Answer("200 OK", kind, body)
        if path == "/api/v1/store":
            return _json(self._board.status())
        part = _PARTS.get(path.removeprefix("/api/v1/")) if path.startswith("/api/v1/") else None
        if part is None:
            return _error("404 Not Found", f"nothing at {path}")
        return _json(part(self._board.cluster()))

    def _ready(self) -> Answer:
        try:
            status = self._board.status()
        except LoopStuck as stuck:
            status = StoreStatus(reasons=(Reason(code=Code.NO_REPLY, detail=str(stuck)),))
        body = to_json(
            {"ready": not status.reasons, "store": status.store, "reasons": status.reasons}
        )
        return Answer(
            "503 Service Unavailable" if status.reasons else "200 OK", _JSON, body + b"\n"
        )


_PARTS: dict[str, Callable[[ClusterReport], object]] = {
    "cluster": lambda report: report.cluster,
    "stores": lambda report: report.stores,
    "shards": lambda report: report.shards,
    "operators": lambda report: report.operators,
    "services": lambda report: report.services,
    "tn-shards": lambda report: report.tn_shards,
    "events": lambda report: report.feed,
}


def _text(status: str, body: str) -> Answer:
    return Answer(status, _TEXT, body.encode())


def _json(value: object) -> Answer:
    return Answer("200 OK", _JSON, to_json(value) + b"\n")


def _error(status: str, message: str) -> Answer:
    return Answer(status, _JSON, to_json({"error": message}) + b"\n")


def _names_loopback(host: str) -> bool:
    """Whether a Host header names a loopback host: ``localhost:7601``, ``127.0.0.1:7601`` or
    ``[::1]:7601``.
    """
    name = host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.split(":")[0]
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
