"""Refusal: how a verb is refused, in one form."""

from __future__ import annotations

from collections.abc import Sequence

from logservice_wire.errors import Reason

from logservice.outcome import Rejected

_WHY_CHARACTERS = 1024
"""Of the reason that is sent: it travels in the trailers of a call, which are bounded."""


def refused(why: str, *, forcible: bool = False) -> Rejected:
    """VERB_REFUSED{why, forcible}."""
    word = "true" if forcible else "false"
    return Rejected(Reason.VERB_REFUSED, {"why": why[:_WHY_CHARACTERS], "forcible": word})


def refused_for(whys: Sequence[str]) -> Rejected:
    """VERB_REFUSED for what can be forced: the first reasons, and how many more there are."""
    shown = "; ".join(whys[:4])
    more = f"; and {len(whys) - 4} more" if len(whys) > 4 else ""
    return refused(shown[: _WHY_CHARACTERS - len(more)] + more, forcible=True)


def wrong(field: str, why: str) -> Rejected:
    """INVALID_ARGUMENT{field, why}. `field`: by its name in the request of the RPC."""
    return Rejected(Reason.INVALID_ARGUMENT, {"field": field, "why": why[:_WHY_CHARACTERS]})
