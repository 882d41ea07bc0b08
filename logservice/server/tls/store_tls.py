"""store_tls: the store's certificates on both planes, followed as their files change.

Theory of operation. The files are looked at every `reload_interval_s`. When a plane's files differ
from the set in use, they are read and checked as a whole (`pem_files`). Only a set that fits
together replaces the one in use. Anything else, such as a half-written file or a key that does not
belong to its certificate, leaves the set in use alone and raises an alarm until the files are
right. So a rotation may replace file after file in any order.

A plane's revocation lists are a part of its set. The gate and the peer transport look at the lists
in use (`logservice.revocation`), also for calls and connections that are under way.

New handshakes take the new set: gRPC asks `fetch` at each one, and the peer transport is told
(`on_peer_change`) and opens its listener anew. Connections that exist live on until they reach
their age (`TlsSection.connection_age_max_s`), which both planes enforce.

INV-TLS-1: every set in use was checked; a failed reload changes nothing.
"""

from __future__ import annotations

import datetime
import logging
import ssl
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import grpc
from cryptography import x509

from logservice import bounds
from logservice.certificate import Purpose, Serial
from logservice.config import StoreConfig
from logservice.pause import Interval
from logservice.revocation import Revocations
from logservice.server.tls.ciphers import chosen
from logservice.server.tls.pem_files import (
    PemMaterial,
    PemPaths,
    TlsRefused,
    load_pair,
    read_pem,
)

CLIENT_PLANE: Final = "client plane"
PEER_PLANE: Final = "peer plane"

_PURPOSES: Final = {
    CLIENT_PLANE: (Purpose.ANSWERING,),
    PEER_PLANE: (Purpose.ANSWERING, Purpose.CALLING),
}

_CIPHERS: Final = "DEFAULT:!aNULL:!eNULL:@SECLEVEL=2"
"""OpenSSL's level 2 ends a handshake in which any certificate has less than 112 bits of strength.
`logservice.certificate` looks once more at what it lets through."""

logger = logging.getLogger(__name__)


class StoreTls:
    """Both planes of one store. Implements `nodehost.transport.link.peer_tls.PeerTls`."""

    def __init__(self, config: StoreConfig, on_peer_change: Callable[[], None]) -> None:
        """Read all files. Raises TlsRefused: a store does not start with what it could not use.

        `on_peer_change` is called on the loop after the peer plane's material was replaced.
        """
        tls = config.tls
        self._config = config
        self._on_peer_change = on_peer_change
        self.looks = Interval(tls.reload_interval_s)
        """Between two looks at the files."""
        self._paths = {
            CLIENT_PLANE: _paths(tls.client_ca, tls.certificate, tls.key, tls.client_crl),
            PEER_PLANE: _paths(tls.peer_ca, tls.peer_certificate, tls.peer_key, tls.peer_crl),
        }
        self._seen: dict[str, object] = {}
        self._used: dict[str, PemMaterial] = {}
        self._failures: dict[str, str] = {}
        self._revocations: dict[str, Revocations] = {}
        self.reloads = 0
        """How many sets were replaced."""
        self.failed_reloads = 0
        """How many times changed files were not usable."""
        for plane, paths in self._paths.items():
            self._seen[plane] = signature_of(paths.files)
            self._use(plane, self._read(plane))

    # --- what is in use ---------------------------------------------------------------------------

    @property
    def trust_domain(self) -> str:
        """See `PeerTls`."""
        return self._config.tls.trust_domain

    @property
    def age_max_s(self) -> float:
        """See `PeerTls`."""
        return self._config.tls.connection_age_max_s

    def client_revocations(self) -> Revocations:
        """The lists in use on the clients' plane; another object when they have changed."""
        return self._revocations[CLIENT_PLANE]

    def client_authorities(self) -> tuple[x509.Certificate, ...]:
        """Who may sign clients' certificates, including authorities that are being phased out."""
        return self._used[CLIENT_PLANE].authorities

    def revoked(self, serials: Sequence[Serial]) -> str:
        """See `PeerTls`."""
        return self._revocations[PEER_PLANE].problem(serials, time.time())

    def material(self, plane: str) -> PemMaterial:
        """The set in use on a plane."""
        return self._used[plane]

    def alarms(self) -> list[str]:
        """What a person must look at; empty when all is well. For health and logs."""
        now = _now()
        found = [
            f"{plane}: new certificate files are not used: {problem}"
            for plane, problem in self._failures.items()
        ]
        for plane, used in self._used.items():
            life = used.not_after - used.not_before
            if used.not_after - now < life * bounds.CERTIFICATE_WARNING_SHARE:
                found.append(
                    f"{plane}: the certificate expires at {used.not_after:%Y-%m-%d %H:%M} UTC"
                )
        for plane, revocations in self._revocations.items():
            found += [f"{plane}: {problem}" for problem in revocations.alarms(now)]
        return found

    def server_credentials(self, *, asking: bool = True) -> grpc.ServerCredentials:
        """Credentials for a port of gRPC; TLS 1.2 or later (gRPC's own floor). `asking`: clients
        need a certificate; without, none is asked for.
        """
        assert chosen(self._config.tls.ciphers), "the process has not chosen gRPC's cipher suites"
        served = self._used[CLIENT_PLANE]

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            """The new set, on one of gRPC's threads at each handshake; None to keep the present
            one.
            """
            nonlocal served
            used = self._used[CLIENT_PLANE]
            if used is served:
                return None
            served = used
            return _grpc_configuration(used, asking=asking)

        return grpc.dynamic_ssl_server_credentials(
            _grpc_configuration(served, asking=asking),
            fetch,  # type: ignore[arg-type]  # the stub does not know that None is allowed
            require_client_authentication=asking,
        )

    def server_context(self) -> ssl.SSLContext:
        """See `PeerTls`."""
        used, ciphers = self._used[PEER_PLANE], ":".join(self._config.tls.ciphers)
        return server_context_of(
            used.certificate, used.key, used.ca, ciphers, asking=ssl.CERT_REQUIRED
        )

    def client_context(self) -> ssl.SSLContext:
        """See `PeerTls`. Host names are not compared, because the store's identity is."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        used, ciphers = self._used[PEER_PLANE], ":".join(self._config.tls.ciphers)
        return _loaded(context, used.certificate, used.key, used.ca, ciphers, ssl.CERT_REQUIRED)

    # --- following the files ----------------------------------------------------------------------

    async def run(self) -> None:
        """Look at the files for ever."""
        while True:
            await self.looks.wait()
            self.poll()

    def poll(self) -> bool:
        """Look once; True when a set was replaced."""
        changed = [plane for plane in self._paths if self._poll_plane(plane)]
        return bool(changed)

    def _poll_plane(self, plane: str) -> bool:
        paths = self._paths[plane]
        signature = signature_of(paths.files)
        if signature == self._seen[plane] and plane not in self._failures:
            return False
        try:
            material = self._read(plane)
        except TlsRefused as error:
            if self._failures.get(plane) != error.message:
                logger.warning("%s: the old certificate stays in use: %s", plane, error.message)
                self.failed_reloads += 1
            self._failures[plane] = error.message
            return False
        self._seen[plane] = signature
        self._failures.pop(plane, None)
        if material == self._used[plane]:
            return False
        self._use(plane, material)
        self.reloads += 1
        logger.info(
            "%s: a new certificate is in use until %s UTC",
            plane,
            material.not_after.strftime("%Y-%m-%d %H:%M"),
        )
        if plane == PEER_PLANE:
            self._on_peer_change()
        return True

    def _use(self, plane: str, material: PemMaterial) -> None:
        before = self._used.get(plane)
        self._used[plane] = material
        if before is None or before.lists != material.lists:
            strict = self._config.tls.revocation_strict and bool(material.lists)
            self._revocations[plane] = Revocations(material.lists, strict=strict)

    def _read(self, plane: str) -> PemMaterial:
        store = self._config.store
        return read_pem(
            self._paths[plane],
            self.trust_domain,
            store.cluster_id,
            store.store_id,
            _PURPOSES[plane],
            _now(),
            self._used[plane].lists if plane in self._used else (),
        )


def _paths(authorities: str, certificate: str, key: str, lists: str) -> PemPaths:
    return PemPaths(Path(authorities), Path(certificate), Path(key), Path(lists) if lists else None)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def signature_of(files: Sequence[Path]) -> object:
    """A value that changes when one of the files does; a missing file is a state like any other."""
    found: list[object] = []
    for path in files:
        try:
            status = path.stat()
        except OSError:
            found.append(None)
        else:
            found.append((status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode))
    return found


def _grpc_configuration(
    material: PemMaterial, *, asking: bool
) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(material.key, material.certificate)], material.ca if asking else None
    )


def server_context_of(
    certificate: bytes, key: bytes, authorities: bytes, ciphers: str, *, asking: ssl.VerifyMode
) -> ssl.SSLContext:
    """A context for a port that answers; TLS 1.2 or later. `ciphers`: those of TLS 1.2, "" for the
    default. `asking`: what is asked of a caller.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # A resumed session is not asked for its certificate again, and would outlive a removed CA.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    return _loaded(context, certificate, key, authorities, ciphers, asking)


class _Engine(ssl.SSLObject):
    """asyncio asks each connection for the decoded form of the other side's certificate, which
    nobody here uses. It does not exist for a name that is no UTF-8: whoever has such a certificate
    would end the task that shakes hands. `logservice.certificate` reads every name.
    """

    def getpeercert(self, binary_form: bool = False) -> Any:
        """The bytes, or nothing."""
        return super().getpeercert(binary_form) if binary_form else {}


def _loaded(
    context: ssl.SSLContext,
    certificate: bytes,
    key: bytes,
    authorities: bytes,
    ciphers: str,
    asking: ssl.VerifyMode,
) -> ssl.SSLContext:
    context.sslobject_class = _Engine
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(f"{ciphers}:@SECLEVEL=2" if ciphers else _CIPHERS)
    context.verify_mode = asking
    context.load_verify_locations(cadata=authorities.decode("ascii", "ignore"))
    load_pair(context, certificate, key)
    return context
