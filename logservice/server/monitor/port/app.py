"""app: what the admin port answers; a WSGI application without state of its own.

    /healthz     200 while the event loop answers: for a supervisor that restarts what hangs
    /readyz      200 when ready, else 503; the reasons are in the body either way
    /metrics     Prometheus
    /api/v1/...  cluster, stores, shards, operators, services, tn-shards and events (any store
                 shows all); store (this one); and the documents with parameters:
        shards/page?filter=&troubled=&sort=&descending=&offset=&count=   (`shard_page`)
        shards/detail?shard=                    one shard, and what its members' stores know of it
        stores/detail?store=                    one store
        history?store=&span=hour|day            the figures of a store (`own.history`)
        findings                                what `logctl doctor` says of the report
        work                                    operators, wishes, drains, versions (`cluster.work`)
        claims?kind=holds|writers|sessions&filter=&keeping=&after_shard=&after_name=&count=
        records?shard=&lsn=&time_us=&latest=&count=   records, for who may read the log
        grants?filter=&offset=&count=           the access list, for who may see it
        runbooks?page=                          a page of docs/operations, or which there are
    /ui          the page; what lies under /ui/ is all it loads

Everything is read-only: there are only GET and HEAD, no body, no cookie. The page may load nothing
from elsewhere and run nothing inline (Content-Security-Policy). Where callers have to say who they
are, everything but the two probes needs that, the page included (`caller`); records and grants need
it everywhere (`guarded_pages`). On a loopback address a request must name a loopback host. Else any
web page could read the answers through a name of its own that resolves to this address (DNS
rebinding).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

from logservice_wire.errors import LogServiceError
from logservice_wire.errors import Reason as Why

from logservice.server.monitor.cluster.rows import ClusterReport
from logservice.server.monitor.own.readiness import Code
from logservice.server.monitor.own.status import Reason, StoreStatus, to_json
from logservice.server.monitor.port.board import Board, LoopStuck, NotServing
from logservice.server.monitor.port.caller import Callers, names_loopback
from logservice.server.monitor.port.console_pages import ConsolePages
from logservice.server.monitor.port.guarded_pages import GuardedPages
from logservice.server.monitor.port.query import BadQuery

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

_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""What of the page's folder is served, and as what."""

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
        guarded: GuardedPages | None = None,
    ) -> None:
        """Read the page. `metrics` makes a body and its content type for an Accept header.
        `callers` says who sends a request; None: nobody's identity is known. `guarded`: what needs
        a right; None: nothing of that is shown.
        """
        self._board = board
        self.callers = Callers(board) if callers is None else callers
        self._metrics = metrics
        self._loopback_only = loopback_only
        self._pages = ConsolePages(board, guarded or GuardedPages(board, self.callers))
        self._page = _page()

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
        if self._loopback_only and not names_loopback(environ.get("HTTP_HOST", "")):
            return _text("421 Misdirected Request", "this port answers to loopback names only\n")
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            refused = _text("405 Method Not Allowed", "read-only\n")
            return Answer(refused.status, refused.content_type, refused.body, (("Allow", "GET"),))
        path = environ.get("PATH_INFO", "/").rstrip("/") or "/"
        try:
            if path not in PROBES:
                self.callers.let_in(environ)
            if path.startswith("/api/v1/"):
                return self._document(path, environ)
            return self._route(path, environ.get("HTTP_ACCEPT", ""))
        except BadQuery as bad:
            return _error("400 Bad Request", str(bad))
        except LogServiceError as error:
            return _refusal(error)
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
        return _error("404 Not Found", f"nothing at {path}")

    def _document(self, path: str, environ: WSGIEnvironment) -> Answer:
        part = path.removeprefix("/api/v1/")
        if part == "store":
            return _json(self._board.status())
        if part in _PARTS:
            return _json(_PARTS[part](self._board.cluster()))
        made = self._pages.make(part, environ)
        return _json(made) if made is not None else _error("404 Not Found", f"nothing at {path}")

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


_STATUS = {
    Why.INVALID_ARGUMENT: "400 Bad Request",
    Why.UNAUTHENTICATED: "401 Unauthorized",
    Why.PERMISSION_DENIED: "403 Forbidden",
    Why.SHARD_NOT_FOUND: "404 Not Found",
    Why.TRUNCATED: "410 Gone",
    Why.BEYOND_TAIL: "416 Range Not Satisfiable",
    Why.BUSY: "429 Too Many Requests",
}
"""What an error of the cluster is in HTTP; any other one may pass."""


def _page() -> dict[str, Answer]:
    """The page, and the files that it loads."""
    found = {}
    for file in (resources.files("logservice.server.monitor") / "ui").iterdir():
        kind = _KINDS.get(file.name[file.name.rfind(".") :])
        if kind is not None:
            path = "/ui" if file.name == "index.html" else f"/ui/{file.name}"
            found[path] = Answer("200 OK", kind, file.read_bytes())
    return found


def _text(status: str, body: str) -> Answer:
    return Answer(status, _TEXT, body.encode())


def _json(value: object) -> Answer:
    return Answer("200 OK", _JSON, to_json(value) + b"\n")


def _refusal(error: LogServiceError) -> Answer:
    said = {"error": error.message, "reason": error.reason.value, "metadata": error.metadata}
    return Answer(
        _STATUS.get(error.reason, "503 Service Unavailable"),
        _JSON,
        to_json(said) + b"\n",
        _CHALLENGE if error.reason is Why.UNAUTHENTICATED else (),
    )


def _error(status: str, message: str) -> Answer:
    return Answer(status, _JSON, to_json({"error": message}) + b"\n")
