"""Wishes: what people wish of stores, replicas and leaders is carried out, after all repairs.

Theory of operation. A shard that has lost something is repaired first; a wish about it waits. Then
come, in this order, the stores that are drained (`looks`), the one-time wishes, the leaders that
shall be somewhere, and what would be better placed elsewhere (`rebalance`). Each begins operators
by `Checkers.move` and `Checkers.lead`, which bound what is under way at once, and each decides by
wish and report alone. So a pass that finds wish and reports equal does nothing.
"""

from __future__ import annotations

from logservice.hakeeper.repair import errands, leaders, rebalance, stuck
from logservice.hakeeper.repair.checkers import Checkers


def carry_out(checkers: Checkers) -> None:
    """Begin what is wished and not under way yet. Nothing is wished before cluster version 2."""
    stuck.carry_out(checkers)
    errands.carry_out(checkers)
    leaders.carry_out(checkers)
    rebalance.carry_out(checkers)
