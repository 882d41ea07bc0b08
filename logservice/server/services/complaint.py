"""complaint: what is wrong with a request, in the words of its fields.

A proposal or a query is checked by the types of its fields (`msgspec`), which say where by a place
in an array: ``Expected `str` of length <= 128 - at `$[3]` ``. A person knows no places.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

_PLACE: Final = re.compile(r"^(.*) - at `\$\[(\d+)\][^`]*`$", re.DOTALL)
_UNSEEN: Final = "characters that cannot be seen"
"""What the one pattern there is refuses."""


def complaint(error: Exception, asked: Struct) -> str:
    """The text of `error`, with the name of the field of `asked` that it is about."""
    found = _PLACE.match(str(error))
    names = asked.__struct_fields__
    # The tag of the struct stands at place 0.
    if found is None or not 1 <= int(found[2]) <= len(names):
        return str(error)
    what = _UNSEEN if "matching regex" in found[1] else found[1]
    return f"{names[int(found[2]) - 1]}: {what}"
