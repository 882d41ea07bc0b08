"""Lowered: bounds of HAKeeper that a world may have lower than the product.

Theory of operation. A bound that is about hundreds of repairs is never reached in a cluster of
seven stores. So some worlds run with a lower one. It is hard: every replica of HAKeeper has to come
to the same decision. A store has no say in it, therefore; the bound of this process is another one
for as long as the world lives, and all of its stores live in this process. The hash of the hard
bounds, which every data directory has, is that of the product: it is made when they are imported.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from logservice import bounds
from logservice.sim.config import SimConfig

_DRIVES = "HAKEEPER_DRIVES_PER_PASS_MAX"
_IN_TURN = "HAKEEPER_DRIVES_IN_TURN_MIN"
_FEW_IN_TURN = 1
"""So few that what nobody hears of waits as long as it may."""


@contextlib.contextmanager
def lowered(config: SimConfig) -> Iterator[None]:
    """Give this process the bounds of the world, in the block."""
    wanted = _wanted(config)
    before = {name: getattr(bounds, name) for name in wanted}
    _set(wanted)
    try:
        yield
    finally:
        _set(before)


def _wanted(config: SimConfig) -> Mapping[str, int]:
    if not config.drives_per_pass:
        return {}
    return {_DRIVES: config.drives_per_pass, _IN_TURN: _FEW_IN_TURN}


def _set(values: Mapping[str, int]) -> None:
    for name, value in values.items():
        setattr(bounds, name, value)
