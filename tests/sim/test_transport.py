"""SimTransport keeps the promises of a transport: the conformance suite, in virtual time."""

from __future__ import annotations

import inspect
import random
from collections.abc import Awaitable, Callable
from inspect import signature

import pytest

from logservice.nodehost.transport.seam import PeerIdentity
from logservice.sim.loop import SimLoop
from logservice.sim.net import NetFaults, SimNet, SimTransport
from tests.nodehost.transport_conformance import TransportConformance

SUITE = sorted(name for name in dir(TransportConformance) if name.startswith("test_"))


class SimWorld:
    """A simulated world in which every store is a process of its own."""

    def __init__(self, loop: SimLoop, net: SimNet) -> None:
        self.loop = loop
        self.net = net
        self.broken: list[BaseException] = []
        self._made = 0

    def make(self, peer: PeerIdentity, *, address: str = "") -> SimTransport:
        self._made += 1
        process = self.loop.process(f"{peer.store_id}#{self._made}")
        return SimTransport(
            peer, self.net, process, address or f"sim:{self._made}", self.broken.append
        )


@pytest.mark.parametrize("through_codec", [False, True], ids=["objects", "codec"])
@pytest.mark.parametrize("name", SUITE)
def test_conformance(name: str, through_codec: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = SimLoop()
    world = SimWorld(loop, SimNet(loop, random.Random(1), NetFaults(through_codec=through_codec)))
    test: Callable[..., Awaitable[None]] = getattr(TransportConformance(), name)
    assert inspect.iscoroutinefunction(test)
    wanted = {"monkeypatch": monkeypatch} if "monkeypatch" in signature(test).parameters else {}
    try:
        task = loop.spawn(loop.world, test(world, **wanted))
        task.add_done_callback(lambda _: loop.stop())
        loop.run_forever()
        task.result()
    finally:
        loop.bury()


def test_the_whole_suite_is_run() -> None:
    assert len(SUITE) >= 20
