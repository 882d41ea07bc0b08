"""Revocation: which certificates are no longer valid although they have not expired.

Theory of operation. An authority revokes certificates by a list (CRL). The list holds the
authority's name, a number that only grows, the date when the next list is due, and the serial
numbers of the certificates. A plane has a file of such lists, one for each of its authorities. Each
list must be signed by an authority of the plane's CA file; so an intermediate authority that has a
list must be in that file, too. Every certificate of a chain is looked up, also those of
intermediate authorities.

A list stays in force when the next one is overdue: it still refuses every certificate that it
names. The state of the others is then unknown, and a setting decides whether they are let in
(`tls.revocation_strict`). By default they are: a list that somebody forgot to renew must not stop a
cluster at a moment that nobody chose. A list with a fifth of its life left is an alarm. With the
strict setting a certificate is also refused when its authority has no list.

INV-CERT-2: a certificate that a list in use names is believed at no new connection and for no call,
and a list is never replaced by one with a lower number.

References: RFC 5280 section 5.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Sequence
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from logservice_wire.errors import InvalidArgument
from logservice_wire.value import value

from logservice import bounds
from logservice.certificate import STRONG_HASHES, UNREADABLE, Serial

_PEM: Final = re.compile(rb"-----BEGIN X509 CRL-----\s.*?\s-----END X509 CRL-----", re.DOTALL)
_EARLY: Final = datetime.timedelta(minutes=5)
"""How far a list may come from the future: clocks differ."""


@value
class RevocationList:
    """The list of one authority. `issuer`: its name (DER)."""

    issuer: bytes
    name: str
    number: int
    made: datetime.datetime
    next_due: datetime.datetime
    revoked: frozenset[int]


class Revocations:
    """The lists of one plane, as they are in use; immutable."""

    def __init__(self, lists: Iterable[RevocationList] = (), *, strict: bool = False) -> None:
        """`strict`: refuse certificates of an authority that has no list or an overdue one."""
        self.lists = tuple(lists)
        self._strict = strict
        self._by_issuer: dict[bytes, list[RevocationList]] = {}
        for one in self.lists:
            self._by_issuer.setdefault(one.issuer, []).append(one)

    def problem(self, serials: Sequence[Serial], now_s: float) -> str:
        """Why a chain is not valid; "" when it is."""
        for depth, serial in enumerate(serials):
            found = self._by_issuer.get(serial.issuer, [])
            if any(serial.number in one.revoked for one in found):
                whose = "the certificate" if depth == 0 else "a certificate of its chain"
                return f"{whose} is revoked"
        if now_s >= self.known_until_s(serials):
            return "nobody says whether the certificate is revoked (no list in force)"
        return ""

    def known_until_s(self, serials: Sequence[Serial]) -> float:
        """Until when `problem` gives the same answer, if the lists stay what they are."""
        if not self._strict or not serials:
            return float("inf")
        # Only the issuer of the bearer's own certificate needs a list, not the authorities above.
        due = [one.next_due.timestamp() for one in self._by_issuer.get(serials[0].issuer, [])]
        return min(due, default=float("-inf"))

    def alarms(self, now: datetime.datetime) -> list[str]:
        """What a person must look at."""
        found = []
        for one in self.lists:
            life = one.next_due - one.made
            if one.next_due - now < life * bounds.CERTIFICATE_WARNING_SHARE:
                found.append(
                    f"the revocation list of {one.name} is due to be replaced by"
                    f" {one.next_due:%Y-%m-%d %H:%M} UTC"
                )
        return found


def read_lists(
    pem: bytes,
    authorities: Sequence[x509.Certificate],
    before: Iterable[RevocationList],
    now: datetime.datetime,
) -> tuple[RevocationList, ...]:
    """The lists in a file. Raises InvalidArgument. `before`: those in use."""
    blocks = _PEM.findall(pem)
    if not blocks:
        raise InvalidArgument("holds no revocation list in PEM")
    try:
        found = tuple(_read(x509.load_pem_x509_crl(block), authorities, now) for block in blocks)
    except UNREADABLE as error:
        raise InvalidArgument("holds a damaged revocation list") from error
    for old in before:
        for new in found:
            if new.issuer == old.issuer and new.number < old.number:
                raise InvalidArgument(
                    f"holds list {new.number} of {old.name}, and list {old.number} is in use"
                )
    return found


def _read(
    crl: x509.CertificateRevocationList,
    authorities: Sequence[x509.Certificate],
    now: datetime.datetime,
) -> RevocationList:
    name = crl.issuer.rfc4514_string()
    if not any(_signed(crl, one) for one in authorities):
        raise InvalidArgument(f"holds a list of {name}, which no authority of the CA file signed")
    for extension in crl.extensions:
        # A list of changes only, or of some certificates only, means something else than we read.
        if extension.critical:
            raise InvalidArgument(f"holds a list of {name} of a kind that is not understood")
    if crl.next_update_utc is None:
        raise InvalidArgument(f"holds a list of {name} that does not say when the next one is due")
    if crl.last_update_utc > now + _EARLY:
        raise InvalidArgument(f"holds a list of {name} from the future")
    try:
        number = crl.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    except x509.ExtensionNotFound as error:
        raise InvalidArgument(f"holds a list of {name} without a number") from error
    return RevocationList(
        crl.issuer.public_bytes(),
        name,
        number,
        crl.last_update_utc,
        crl.next_update_utc,
        frozenset(one.serial_number for one in crl),
    )


def _signed(crl: x509.CertificateRevocationList, authority: x509.Certificate) -> bool:
    if authority.subject != crl.issuer:
        return False
    digest = crl.signature_hash_algorithm
    if digest is not None and digest.name not in STRONG_HASHES:
        return False
    try:
        return crl.is_signature_valid(authority.public_key())  # type: ignore[arg-type]
    except (TypeError, UnsupportedAlgorithm):
        return False
