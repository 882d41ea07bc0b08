"""pem_text: what is wrong with the text of a PEM file, in words, before any library reads it.

Theory of operation. Libraries of TLS disagree about what PEM is, and gRPC's says no more than that
it could not use it. So the text is looked at first, by the strictest reading that they share
(RFC 7468): a block begins and ends with a line of its own, its end names the same thing, and
nothing stands before the first block that is no text. Text between blocks is allowed, because
programs write names of certificates there, and so are both kinds of line ends.

What a block holds is not looked at here.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

CERTIFICATES: Final = ("CERTIFICATE",)
KEYS: Final = ("PRIVATE KEY", "EC PRIVATE KEY", "RSA PRIVATE KEY")
LISTS: Final = ("X509 CRL",)

_MARKS: Final = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
_DER: Final = 0x30
_LABEL: Final = re.compile(rb"-----(BEGIN|END) ([A-Z0-9 ]{1,32})-----")
_FIX: Final = "save it as plain text without it"


def pem_problem(data: bytes, wanted: Collection[str]) -> str:
    """Why the file is no PEM with a block of one of the `wanted` kinds; "" when it is."""
    if not data.strip():
        return "is empty"
    if data.startswith(_MARKS):
        return f"begins with a byte order mark (BOM): {_FIX}"
    if data[0] == _DER and b"-----BEGIN" not in data:
        return "is DER, which has to be PEM here (`openssl ... -inform DER -outform PEM`)"
    if b"\0" in data:
        return "holds bytes that are no text"
    found: list[str] = []
    begun = ""
    for number, raw in enumerate(data.split(b"\n"), 1):
        line = raw.rstrip(b"\r \t")
        if b"-----BEGIN" not in line and b"-----END" not in line:
            continue
        match = _LABEL.fullmatch(line)
        if match is None:
            return f"has something beside {_named(line)} in line {number}"
        word, label = match[1], match[2].decode("ascii", "replace")
        if word == b"BEGIN" and begun:
            return f"has no -----END {begun}----- before line {number}"
        if word == b"END" and label != begun:
            return f"has an -----END {label}----- in line {number} that ends nothing"
        begun = label if word == b"BEGIN" else ""
        found += [label] if begun else []
    if begun:
        return f"has no -----END {begun}-----: the end of the file is missing"
    return _wrong_kind(data, found, wanted)


def _named(line: bytes) -> str:
    return "-----BEGIN" if b"-----BEGIN" in line else "-----END"


def _wrong_kind(data: bytes, found: Collection[str], wanted: Collection[str]) -> str:
    if not found:
        return "holds no PEM: there is no line -----BEGIN ...-----"
    if wanted == KEYS and ("ENCRYPTED PRIVATE KEY" in found or b"Proc-Type: 4,ENCRYPTED" in data):
        return (
            "holds an encrypted key, and nobody is there to say its password"
            " (`openssl pkey -in ... -out ...` writes it without)"
        )
    if not set(found) & set(wanted):
        return f"holds {', '.join(sorted(set(found)))}, and {' or '.join(wanted)} is wanted"
    return ""
