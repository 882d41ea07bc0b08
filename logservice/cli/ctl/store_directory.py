"""store_directory: `logctl store STORE directory VERB PATH`: data directories of a running store.

To add and to remove is asked of the store itself, which opens and closes files. To drain is a wish
that HAKeeper keeps; it knows directories by their incarnations, which are looked up by the path.
"""

from __future__ import annotations

from typing import Final

from logservice_client import LogClient
from logservice_wire.errors import InvalidArgument
from logservice_wire.rpcs import ADD_DIRECTORY, REMOVE_DIRECTORY
from logservice_wire.v1 import admin_pb2, hakeeper_pb2

from logservice.bounds import DIRECTORY_OPEN_S
from logservice.cli.ctl.client_session import Session
from logservice.cli.ctl.direct_call import call_store
from logservice.cli.ctl.progress import watch
from logservice.cli.ctl.store_address import address_of
from logservice.cli.shell.output import Row

VERBS: Final = ("add", "drain", "undrain", "remove")


def change_directory(
    session: Session, store: str, verb: str, path: str, force: bool, wait_s: float
) -> Row:
    """Do it, and say what is known then. `wait_s`: for a drain."""
    if verb in ("add", "remove"):
        return _ask_the_store(session, store, verb, path)
    return _wish(session, store, path, undo=verb == "undrain", force=force, wait_s=wait_s)


def _ask_the_store(session: Session, store: str, verb: str, path: str) -> Row:
    address = address_of(session, store)
    timeout_s = max(session.timeout_s, DIRECTORY_OPEN_S)
    if verb == "add":
        added = admin_pb2.AddDirectoryRequest(path=path)
        found = call_store(address, ADD_DIRECTORY, added, timeout_s, session.tls).incarnation
    else:
        gone = admin_pb2.RemoveDirectoryRequest(path=path)
        found = call_store(address, REMOVE_DIRECTORY, gone, timeout_s, session.tls).incarnation
    state = "used" if verb == "add" else "removed"
    return {"store": store, "directory": path, "incarnation": found, "state": state}


def _wish(
    session: Session, store: str, path: str, *, undo: bool, force: bool, wait_s: float
) -> Row:
    async def work(client: LogClient) -> int:
        state = await client.hakeeper.cluster_state(timeout=session.timeout_s)
        found = _named(state, store, path)
        await client.hakeeper.drain_directory(
            _store(state, store).store_id,
            found.incarnation,
            undo=undo,
            force=force,
            timeout=session.timeout_s,
        )
        if wait_s:
            await watch(client, lambda state: _drained(state, store, path), wait_s)
        return found.incarnation

    incarnation = session.run(work)
    state = "used" if undo else "empty" if wait_s else "draining"
    return {"store": store, "directory": path, "incarnation": incarnation, "state": state}


def _store(state: hakeeper_pb2.ClusterState, store: str) -> hakeeper_pb2.StoreInfo:
    for one in state.stores:
        if store in (one.store_id, one.client_address):
            return one
    raise InvalidArgument(f"no store is called {store}", field="store_id")


def _named(state: hakeeper_pb2.ClusterState, store: str, path: str) -> hakeeper_pb2.DirectoryInfo:
    known = _store(state, store).directories
    found = [one for one in known if path in (one.path, str(one.incarnation))]
    if len(found) != 1:
        there = ", ".join(f"{one.path} ({one.incarnation})" for one in known)
        raise InvalidArgument(f"the data directories of {store} are {there}", field="path")
    return found[0]


def _drained(state: hakeeper_pb2.ClusterState, store: str, path: str) -> tuple[bool, str]:
    found = _named(state, store, path)
    left = f"{found.members_left} replicas and {found.leaders_left} leaders are left"
    also = f", {found.leftovers} are being removed" if found.leftovers else ""
    flags = [flag for flag in state.flags if found.path in flag]
    return found.empty, "; ".join([f"{path}: {left}{also}", *flags])
