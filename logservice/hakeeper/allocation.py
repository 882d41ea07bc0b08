"""Allocation: unique ids for the database, once per request.

Theory of operation. Every key has a counter. A call takes the range [first, first + count), and no
later call for that key gets any id of that range. A caller that does not know the outcome of its
call repeats it with the same request id and gets the same range: the state, and so its snapshot,
remembers the newest ALLOCATE_REQUESTS_REMEMBERED requests. Ids start at 1, so 0 stays free for
"none"; after a recovery or a restore they start far above what was given out (`given_out`).
"""

from __future__ import annotations

from logservice_wire.errors import Reason

from logservice import bounds
from logservice.hakeeper.commands.phase import Phase
from logservice.hakeeper.commands.proposals import AllocateIds
from logservice.hakeeper.state import State
from logservice.outcome import Applied, Outcome, Rejected

_ID_MAX = 2**62


def apply_allocate(state: State, request: AllocateIds) -> Outcome:
    """`value` of the outcome is the first id, `count` how many.

    Rejected: NOT_READY before the first configuration, BUSY when there are ALLOCATE_KEYS_MAX keys,
    TOO_LARGE when the ids of a key are used up.
    """
    if state.phase is Phase.CREATED:
        return Rejected(Reason.NOT_READY, {"phase": state.phase.value})
    parts = (request.owner, request.key, str(request.count), request.request_id)
    memo = "\0".join(parts) if request.request_id else ""
    known = state.id_requests.get(memo)
    if memo and known is not None:
        return Applied(value=known, count=request.count, duplicate=True)
    if request.key not in state.id_counters and len(state.id_counters) >= bounds.ALLOCATE_KEYS_MAX:
        return Rejected(Reason.BUSY, {"limit": str(bounds.ALLOCATE_KEYS_MAX)})
    first = state.id_counters.get(request.key, state.ids_from)
    if first + request.count > _ID_MAX:
        return Rejected(Reason.TOO_LARGE, {"limit": str(_ID_MAX), "name": "ids"})
    state.id_counters[request.key] = first + request.count
    if memo:
        state.id_requests[memo] = first
        state.id_request_order.append(memo)
        while len(state.id_request_order) > bounds.ALLOCATE_REQUESTS_REMEMBERED:
            del state.id_requests[state.id_request_order.pop(0)]
    return Applied(value=first, count=request.count)
