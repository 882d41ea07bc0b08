"""Lowered: bounds that a world may have lower than the product.

Theory of operation. A bound that is about hundreds of repairs is never reached in a cluster of
seven stores, and one about gigabytes or hours in none of these. So some worlds run with a lower
one. Most are hard: every replica has to come to the same decision. A store has no say in it,
therefore; the bound of this process is another one for as long as the world lives, and all of its
stores live in this process. The hash of the hard bounds, which every data directory has, is that of
the product: it is made when they are imported. A bound is lowered where the code that it binds
looks it up.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import ModuleType

from logservice import bounds
from logservice.rsm import named_sessions
from logservice.sim.config import SimConfig

_DRIVES = "HAKEEPER_DRIVES_PER_PASS_MAX"
_IN_TURN = "HAKEEPER_DRIVES_IN_TURN_MIN"
_FEW_IN_TURN = 1
"""So few that what nobody hears of waits as long as it may."""
_NAMES = "NAMED_SESSIONS_MAX"
_HOLD_STANDS = "READER_HOLD_STANDS_S_MAX"
_HOLD_BYTES = "READER_HOLD_BYTES_MAX"

_Bound = tuple[ModuleType, str]


@contextlib.contextmanager
def lowered(config: SimConfig) -> Iterator[None]:
    """Give this process the bounds of the world, in the block."""
    wanted = _wanted(config)
    before = {(module, name): getattr(module, name) for module, name in wanted}
    _set(wanted)
    try:
        yield
    finally:
        _set(before)


def _wanted(config: SimConfig) -> dict[_Bound, float]:
    wanted: dict[_Bound, float] = {}
    if config.drives_per_pass:
        wanted[bounds, _DRIVES], wanted[bounds, _IN_TURN] = config.drives_per_pass, _FEW_IN_TURN
    if config.names_max:
        # One identity may have half of what is free for all.
        wanted[named_sessions, _NAMES] = 2 * config.names_max
    if config.reader_hold_stands_s:
        wanted[bounds, _HOLD_STANDS] = config.reader_hold_stands_s
    if config.reader_hold_bytes:
        wanted[bounds, _HOLD_BYTES] = config.reader_hold_bytes
    return wanted


def _set(values: dict[_Bound, float]) -> None:
    for (module, name), value in values.items():
        setattr(module, name, value)
