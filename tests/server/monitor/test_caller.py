"""Who a request to the admin port comes from, asked of a real store's gate."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from logservice_wire.errors import NotReady, PermissionDenied, Unauthenticated
from logservice_wire.rpcs import READ, TRUNCATE

from logservice.ids import ShardId
from logservice.owner import ANONYMOUS
from logservice.server.monitor.own.status import StoreStatus
from logservice.server.monitor.port.board import Board
from logservice.server.monitor.port.caller import CHAIN, Callers, from_this_machine
from tests.server.secured import OWNER, lay_out, papers_of, secured
from tests.server.test_store import configured


@pytest.mark.parametrize(
    ("more", "here"),
    [
        ({}, True),
        ({"REMOTE_ADDR": "::1", "HTTP_HOST": "[::1]:7601"}, True),
        ({"HTTP_HOST": "localhost:7601"}, True),
        ({"REMOTE_ADDR": "192.0.2.7"}, False),
        ({"REMOTE_ADDR": ""}, False),
        ({"HTTP_HOST": "rebound.example:7601"}, False),
        ({"HTTP_HOST": ""}, False),
        ({"HTTP_VIA": "1.1 proxy"}, False),
        ({"HTTP_FORWARDED": ""}, False),
    ],
)
def test_which_requests_come_from_this_machine(more: dict[str, str], here: bool) -> None:
    request = {"REMOTE_ADDR": "127.0.0.1", "HTTP_HOST": "127.0.0.1:7601", **more}
    assert from_this_machine(request) is here


async def test_in_plaintext_everybody_may_do_everything(tmp_path: Path) -> None:
    from logservice.server.store import Store

    store = Store(configured(tmp_path / "data"))
    await store.start()
    try:
        assert store._monitor is not None
        callers = store._monitor.callers
        caller = await asyncio.to_thread(callers.of, {})
        assert caller is not None
        assert caller.uri == ANONYMOUS
        await asyncio.to_thread(callers.check, caller, READ, ShardId(1))
    finally:
        await store.stop()


async def test_the_access_list_decides_as_it_does_for_the_rpc(tmp_path: Path) -> None:
    """INV-ADMIN-1: an identity with the role, one without it, a certificate that is no client's,
    and nobody."""
    lay_out(tmp_path)
    async with secured(tmp_path) as store:
        assert store._monitor is not None
        callers = store._monitor.callers

        async def check(chain: bytes, rpc: Any) -> str:
            caller = await asyncio.to_thread(callers.of, {CHAIN: chain} if chain else {})
            await asyncio.to_thread(callers.check, caller, rpc, ShardId(1))
            return caller.uri if caller is not None else ""

        assert (await check(OWNER.certificate, TRUNCATE)).endswith("/client/admin")
        with pytest.raises(PermissionDenied):
            await check(papers_of("stranger").certificate, READ)
        with pytest.raises(Unauthenticated):
            await check(b"no certificate", READ)
        assert await asyncio.to_thread(callers.of, {}) is None
        with pytest.raises(Unauthenticated):
            await check(b"", READ)


async def test_before_the_store_has_a_gate_nobody_is_known() -> None:
    board = Board(StoreStatus)
    with pytest.raises(NotReady):
        await asyncio.to_thread(Callers(board).of, {})
