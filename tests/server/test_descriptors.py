"""Who gets how many descriptors, and that a store takes what the system gives."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest
from logservice_wire.errors import NotReady

from logservice import bounds
from logservice.server import descriptors
from logservice.server.edge.connections import ConnectionLimits


@pytest.mark.parametrize(
    ("among", "directories"),
    [(bounds.DESCRIPTORS_MIN, 1), (1024, 1), (1024, 8), (4096, 4), (65_536, 64), (2**20, 1)],
)
def test_shares_add_up(among: int, directories: int) -> None:
    shares = descriptors.share(among, directories)
    assert shares.own + shares.peers + shares.clients <= among
    assert min(shares.own, shares.peers, shares.clients) > 0
    assert shares.clients <= bounds.CLIENT_CONNECTIONS_MAX
    assert bool(shares.alarms()) == (among < bounds.DESCRIPTORS_WANTED)


def test_a_store_with_plenty_gives_everybody_all_that_is_wanted() -> None:
    shares = descriptors.share(bounds.DESCRIPTORS_WANTED, 1)
    assert shares.clients == bounds.CLIENT_CONNECTIONS_MAX
    assert shares.peers == bounds.DESCRIPTORS_OF_PEERS


def test_too_few_are_refused() -> None:
    with pytest.raises(NotReady, match="LimitNOFILE"):
        descriptors.share(bounds.DESCRIPTORS_MIN - 1, 1)


def test_strangers_get_less_than_all() -> None:
    limits = ConnectionLimits.of(300, 1024, 2048)
    assert limits.half_open < 300
    assert limits.half_open_of_address < limits.half_open
    assert limits.identity == limits.address == 300
    plenty = ConnectionLimits.of(bounds.CLIENT_CONNECTIONS_MAX, 1024, 2048)
    assert plenty == ConnectionLimits()


def test_the_limit_is_raised_as_far_as_it_goes() -> None:
    code = "from logservice.server import descriptors; print(descriptors.raise_limit())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 2048)),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "2048"


def test_without_a_limit_a_bounded_number_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    infinite, most = resource.RLIM_INFINITY, bounds.DESCRIPTORS_MAX
    monkeypatch.setattr(descriptors.resource, "setrlimit", lambda _, pair: asked.append(pair))
    for found, wanted in (
        ((1024, infinite), [(most, infinite)]),
        ((most, infinite), []),
        ((infinite, infinite), []),
        ((1024, most + 1), [(most, most + 1)]),
    ):
        asked.clear()
        monkeypatch.setattr(descriptors.resource, "getrlimit", lambda _, pair=found: pair)
        descriptors.raise_limit()
        assert asked == wanted, found
    monkeypatch.setattr(descriptors.resource, "getrlimit", lambda _: (infinite, infinite))
    assert descriptors.limit() == bounds.DESCRIPTORS_MAX
