r"""safe_text: text from somebody else, as it may be shown on a terminal, in a log line, on a page.

Theory of operation. A terminal obeys what it is shown: escape sequences move the cursor, set the
title, answer questions on the reader's behalf; bidirectional controls and characters without a
width make one name look like another. So whatever came from outside this process is shown with such
characters spelled out (``\x1b``, ``\u202e``), at the few places where text leaves for a person
(`cli.output`, `server.log_format`). JSON is exact instead: its encoder escapes for itself.

Names (of holds, holders, shards, services, labels) may not hold such characters to begin with
(`unsafe`); what is stored once is shown in many places, some of them not ours.

The set of such characters is written out in full: replicas decide by it whether a name is accepted,
and Python's tables of characters differ between versions. The set holds C0 and C1 controls and DEL;
the soft hyphen; marks of direction and their embeddings, overrides and isolates; line and paragraph
separators; joiners and other characters without width; fillers; annotations; tags; surrogates.

References: ECMA-48 (controls), Unicode Standard Annex 9 (bidirectional controls), CVE-2021-42574.
"""

from __future__ import annotations

import re
from typing import Final

_UNSAFE: Final = (
    "\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U000e0000-\U000e0fff"
)
_FOUND: Final = re.compile(f"[{_UNSAFE}]")
_FOUND_IN_LINES: Final = re.compile(f"(?![\n\t])[{_UNSAFE}]")

SAFE_PATTERN: Final = rf"\A[^{_UNSAFE}]*\Z"
"""What a safe text matches, as a pattern for schemas."""


def unsafe(text: str) -> bool:
    """Whether `text` holds a character that may not be in a name."""
    return _FOUND.search(text) is not None


def safe_text(text: str) -> str:
    """`text` on one line, with what a terminal would obey spelled out."""
    return _FOUND.sub(_spelled, text)


def safe_lines(text: str) -> str:
    """`text` with what a terminal would obey spelled out, except line breaks and tabs."""
    return _FOUND_IN_LINES.sub(_spelled, text)


def _spelled(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
