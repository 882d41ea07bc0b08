"""Invariants: programmer errors, checked in production, that halt a replica or stop the store.

An operating error (bad input, no leader, full disk) is an exception of `logservice_wire.errors`. An
invariant violation means that our own reasoning is wrong. Going on could turn one bug into lost
data. So the replica halts whose invariant it was, and the store exits when its shards share what
broke. Ids (``INV-LOG-2``) lead from the check to the test and to the document.
"""

from __future__ import annotations


class InvariantViolation(BaseException):
    """A checked invariant did not hold; its replica or the store must stop.

    It derives from BaseException so that no ``except Exception`` on the way can swallow it.
    """

    def __init__(self, invariant_id: str, context: dict[str, object]) -> None:
        details = ", ".join(f"{name}={value!r}" for name, value in context.items())
        super().__init__(f"{invariant_id} violated: {details}")
        self.invariant_id = invariant_id
        self.context = context


def invariant(condition: bool, invariant_id: str, **context: object) -> None:
    """Raises InvariantViolation unless `condition` holds. `context` is in the crash report."""
    if not condition:
        raise InvariantViolation(invariant_id, context)
