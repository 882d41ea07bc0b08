"""new_name: what a log may be called that is created or renamed now.

A name stands on command lines, in scopes of grants (``name/wal-*``), in lists with commas and in
addresses of pages. So it has no space, no quote and nothing that a shell or a pattern takes for its
own, and it begins with no hyphen. Letters and digits are those of any script. A log that has
another name from before keeps it.
"""

from __future__ import annotations

import re
from typing import Final

from logservice_wire.errors import InvalidArgument

_REFUSED: Final = re.compile(r"""\A-|[\s!"#$%&'()*,;<>?\[\\\]^`{|}~]""")


def new_name(name: str) -> str:
    """The name. Raises InvalidArgument for one that no log may get."""
    found = _REFUSED.search(name)
    if found is not None:
        raise InvalidArgument(
            f"a log is not called {name!r}: {found.group()!r} is not for names;"
            " take letters, digits and . _ - : / @ + =",
            field="name",
        )
    return name
