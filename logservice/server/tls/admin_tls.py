"""admin_tls: the certificate that the admin port shows, followed as it changes.

Theory of operation. Without files of its own the port shows the certificate of the clients' plane,
as `store_tls` follows it. With files of its own (a certificate that browsers and Prometheus know)
they are looked at every `tls.reload_interval_s`, and only a pair that fits together replaces the
one in use; anything else is an alarm, as for the other planes. Callers may show a certificate of
the clients' authorities, and need not: who they are is decided for each request (`monitor.port`).

Every connection gets the context of its moment, so nothing is restarted.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
import ssl
from pathlib import Path

from logservice import bounds
from logservice.config import StoreConfig
from logservice.server.tls.pem_files import CertificatePair, TlsRefused, read_pair
from logservice.server.tls.store_tls import CLIENT_PLANE, StoreTls, server_context_of, signature_of

logger = logging.getLogger(__name__)


class AdminTls:
    """`context` is called in the port's thread, everything else on the event loop."""

    def __init__(self, config: StoreConfig, tls: StoreTls) -> None:
        """Read the port's own files, if there are any. Raises TlsRefused."""
        section = config.admin
        self._tls = tls
        self._ciphers = ":".join(config.tls.ciphers)
        self._files = (
            (Path(section.certificate), Path(section.key)) if section.certificate else None
        )
        self._failure = ""
        self._seen: object = None
        self._own: CertificatePair | None = None
        if self._files is not None:
            self._seen = signature_of(self._files)
            self._own = read_pair(*self._files, _now())
        self._made: tuple[object, object, ssl.SSLContext] | None = None

    def context(self) -> ssl.SSLContext:
        """For a connection that begins now."""
        plane, own = self._tls.material(CLIENT_PLANE), self._own
        made = self._made
        if made is None or made[0] is not plane or made[1] is not own:
            shown = own if own is not None else plane
            context = server_context_of(
                shown.certificate, shown.key, plane.ca, self._ciphers, asking=ssl.CERT_OPTIONAL
            )
            context.set_alpn_protocols(["http/1.1"])
            made = self._made = (plane, own, context)
        return made[2]

    @property
    def not_after(self) -> datetime.datetime | None:
        """When the port's own certificate expires; None when it has none of its own."""
        return self._own.not_after if self._own is not None else None

    async def run(self) -> None:
        """Look at the port's own files for ever."""
        while True:
            await asyncio.sleep(self._tls.looks.seconds)
            self.poll()

    def poll(self) -> None:
        """Look at the port's own files once."""
        if self._files is None:
            return
        signature = signature_of(self._files)
        if signature == self._seen and not self._failure:
            return
        try:
            found = read_pair(*self._files, _now())
        except TlsRefused as error:
            if error.message != self._failure:
                logger.warning("admin port: the old certificate stays in use: %s", error.message)
            self._failure = error.message
            return
        self._seen, self._failure = signature, ""
        if found != self._own:
            self._own = found
            logger.info("admin port: a new certificate is in use")

    def alarms(self) -> list[str]:
        """What a person must look at."""
        found = []
        if self._failure:
            found.append(f"admin port: new certificate files are not used: {self._failure}")
        own = self._own
        if own is not None:
            life = own.not_after - own.not_before
            if own.not_after - _now() < life * bounds.CERTIFICATE_WARNING_SHARE:
                found.append(
                    f"admin port: the certificate expires at {own.not_after:%Y-%m-%d %H:%M} UTC"
                )
        return found


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
