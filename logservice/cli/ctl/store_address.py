"""store_address: where the store that a person names answers calls of its own."""

from __future__ import annotations

from logservice_client.endpoints import check_address
from logservice_wire.errors import InvalidArgument

from logservice.bounds import STORES_NAMED_MAX
from logservice.cli.ctl.client_session import Session


def address_of(session: Session, store: str) -> str:
    """The client address of a store that is named, or `store` itself if it is an address. Raises
    InvalidArgument{store_id}.
    """
    if ":" in store:
        check_address(store)
        return store
    state = session.run(
        lambda client: client.hakeeper.cluster_state(stale=True, timeout=session.timeout_s)
    )
    found = {one.store_id: one.client_address for one in state.stores}
    if store not in found:
        there = sorted(found)[:STORES_NAMED_MAX]
        more = f" and {len(found) - len(there)} more" if len(found) > len(there) else ""
        text = f"no store is called {store}; there are {', '.join(there)}{more}"
        raise InvalidArgument(text, field="store_id")
    return found[store]
