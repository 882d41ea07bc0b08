"""What the kernel drops for a filter on a listening socket, and whose share shrinks and grows."""

from __future__ import annotations

import contextlib
import errno
import logging
import select
import socket
import struct
from collections.abc import Iterator

import pytest

from logservice import bounds
from logservice.server.edge import syn_filter
from logservice.server.edge.call import refused
from logservice.server.edge.connections import ConnectionLimits, Connections
from logservice.server.edge.syn_filter import Floods
from tests.waiting import wait_until

ALL = 32
"""So many halvings let one SYN in 4 thousand million through."""

_SO_MEMINFO, _OPTMEM = 55, 6
_SO_LOCK_FILTER = 44


@contextlib.contextmanager
def listening(host: str = "127.0.0.1") -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server(
        (host, 0), family=family, backlog=256, dualstack_ipv6=host == "::"
    ) as made:
        made.setblocking(False)
        yield made


@contextlib.contextmanager
def connecting(listener: socket.socket, source: str) -> Iterator[socket.socket]:
    """A socket that begins to connect."""
    version = socket.AF_INET6 if ":" in source else socket.AF_INET
    with socket.socket(version) as made:
        made.bind((source, 0))
        made.setblocking(False)
        target = "::1" if ":" in source else "127.0.0.1"
        assert made.connect_ex((target, listener.getsockname()[1])) == errno.EINPROGRESS
        yield made


def connected(one: socket.socket) -> bool:
    return bool(select.select([], [one], [], 0)[1])


def let_through(listener: socket.socket, one: socket.socket, dropped: int) -> bool:
    """Whether its first SYN got a connection; `dropped`: how many packets were before it."""
    wait_until(lambda: connected(one) or syn_filter.dropped(listener) > dropped, 30.0)
    return syn_filter.dropped(listener) == dropped


def gets_in(listener: socket.socket, source: str) -> bool:
    """Whether the first SYN gets a connection, which works."""
    before = syn_filter.dropped(listener)
    with connecting(listener, source) as made:
        if not let_through(listener, made, before):
            return False
        with listener.accept()[0] as accepted:
            exchange(made, accepted)
            assert syn_filter.dropped(accepted) == 0
        return True


def exchange(one: socket.socket, other: socket.socket) -> None:
    for end in (one, other):
        end.settimeout(10)
    for sender, receiver in ((one, other), (other, one)):
        sender.sendall(b"hello")
        assert receiver.recv(5, socket.MSG_WAITALL) == b"hello"


def filtered(one: socket.socket) -> bool:
    """It has a filter: the kernel keeps memory for it."""
    held = one.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 36)
    return bool(struct.unpack("=9I", held)[_OPTMEM])


@pytest.mark.parametrize(
    ("host", "dropped", "passed"),
    [
        ("127.0.0.1", ["127.0.0.9"], ["127.0.0.8", "127.0.0.10", "127.0.1.9"]),
        ("127.0.0.1", ["127.0.0.9", "127.0.0.7"], ["127.0.0.8"]),
        # Both versions at one socket: IPv4 comes in IPv4's own header.
        ("::", ["127.0.0.9", "::1"], ["127.0.0.8"]),
        ("::", ["127.0.0.9"], ["::1"]),
        ("::", ["::1"], ["127.0.0.1"]),
    ],
)
def test_a_syn_of_an_address_in_the_filter_gets_no_connection(
    host: str, dropped: list[str], passed: list[str]
) -> None:
    elsewhere = ["10.0.0.9", "::2", "1::1", "::1:0:1", "::1:0:0:1", "127.0.0.0"]
    with listening(host) as listener:
        syn_filter.attach(listener, dict.fromkeys((*elsewhere, *dropped, "fe80::9"), ALL))
        assert [gets_in(listener, source) for source in dropped] == [False] * len(dropped)
        assert [gets_in(listener, source) for source in passed] == [True] * len(passed)
        syn_filter.attach(listener, dict.fromkeys(elsewhere, ALL))
        assert all(gets_in(listener, source) for source in dropped)
        syn_filter.attach(listener, dict.fromkeys(dropped, ALL))
        assert not any(gets_in(listener, source) for source in dropped)
        syn_filter.detach(listener)
        assert all(gets_in(listener, source) for source in dropped)


def test_a_share_gets_in() -> None:
    with listening() as listener:
        syn_filter.attach(listener, {"127.0.0.9": 2})
        seen = [gets_in(listener, "127.0.0.9") for _ in range(400)]
        # A quarter is 100, with a deviation of 9.
        assert 30 < sum(seen) < 200


def test_what_belongs_to_a_connection_passes() -> None:
    """INV-SYN-1: of one that was there before, and of one that inherited a filter with its own
    address in it and keeps that filter.
    """
    with (
        listening() as listener,
        connecting(listener, "127.0.0.9") as old,
        listener.accept()[0] as accepted,
        contextlib.ExitStack() as stack,
    ):
        syn_filter.attach(accepted, {"127.0.0.9": ALL})
        syn_filter.attach(listener, {"127.0.0.9": 3})
        exchange(old, accepted)
        while True:
            before = syn_filter.dropped(listener)
            one = stack.enter_context(connecting(listener, "127.0.0.9"))
            if let_through(listener, one, before):
                break
            one.close()
        inherited = stack.enter_context(listener.accept()[0])
        syn_filter.detach(listener)
        exchange(one, inherited)
        assert filtered(inherited)
        assert [syn_filter.dropped(each) for each in (accepted, inherited)] == [0, 0]


@pytest.mark.parametrize("address", ["10.0.0.{}", "fe80::9000:{}"])
def test_as_many_addresses_as_may_be_fit_old_kernels(address: str) -> None:
    """FLOOD_ADDRESSES_MAX, twice: while one filter takes the place of another both are there."""
    halvings = {
        address.format(number): bounds.FLOOD_HALVINGS_MAX
        for number in range(bounds.FLOOD_ADDRESSES_MAX)
    }
    assert len(syn_filter.program(halvings)) < 4096
    with listening() as listener:
        syn_filter.attach(listener, halvings)
        held = listener.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 36)
        assert 2 * struct.unpack("=9I", held)[_OPTMEM] < 20 * 1024
        assert gets_in(listener, "127.0.0.9")


# --- whose share shrinks --------------------------------------------------------------------------

MOST = bounds.FLOOD_EXCESS_MAX


def test_a_small_excess_is_no_flood() -> None:
    """FLOOD_EXCESS_MAX."""
    floods = Floods()
    assert not floods.look({"a": MOST, "b": 1})
    assert floods.look({"a": MOST + 1})
    assert floods.halvings == {"a": 1}


def test_the_share_shrinks_with_the_excess_and_grows_again() -> None:
    """FLOOD_HALVINGS_MAX."""
    floods = Floods()
    assert floods.look({"a": 9 * MOST})
    assert floods.halvings == {"a": 4}
    assert not floods.look({"a": MOST})
    assert floods.look({"a": 2 * MOST})
    assert floods.halvings == {"a": 6}
    assert floods.look({"a": 1000 * MOST})
    assert not floods.look({"a": 1000 * MOST})
    assert floods.halvings == {"a": bounds.FLOOD_HALVINGS_MAX}
    for left in reversed(range(1, bounds.FLOOD_HALVINGS_MAX)):
        assert floods.look({"a": MOST // 2})
        assert floods.halvings == {"a": left}
    assert floods.look({})
    assert floods.halvings == {}
    assert not floods.look({})


def test_the_worst_are_in_the_filter() -> None:
    """FLOOD_ADDRESSES_MAX. One that is in it stays as long as it has to."""
    floods = Floods()
    floods.look({"a": MOST + 1})
    many = {f"b{number}": MOST + 2 + number for number in range(bounds.FLOOD_ADDRESSES_MAX)}
    floods.look({"a": MOST + 1, **many})
    assert set(floods.halvings) == {"a", *many} - {"b0"}


# --- of whoever looks -----------------------------------------------------------------------------


def test_the_filter_is_there_while_there_is_a_flood(caplog: pytest.LogCaptureFixture) -> None:
    before = refused["Connection/dropped"]
    limits = ConnectionLimits(half_open_of_address=4)
    with listening() as listener, listening() as other, contextlib.ExitStack() as stack:
        watched = Connections(limits, listener.getsockname()[1])
        watched.start()
        stack.callback(watched.stop)
        wait_until(lambda: watched._listening, 30.0)
        assert not filtered(listener)

        def connect() -> bool:
            stack.enter_context(connecting(listener, "127.0.0.9"))
            with contextlib.suppress(BlockingIOError):
                stack.enter_context(listener.accept()[0])
            return refused["Connection/dropped"] > before

        # Nobody closes what is cut here, so the excess stays.
        wait_until(connect, 60.0)
        assert filtered(listener)
        assert not filtered(other)
        assert gets_in(listener, "127.0.0.8")
        for one in list(watched._sockets.values()):
            one.excess = False
        wait_until(lambda: not filtered(listener), 60.0)
        assert gets_in(listener, "127.0.0.9")
    assert "does not drop" not in caplog.text


def test_nothing_is_dropped_when_nobody_looks_any_more() -> None:
    with listening() as listener:
        watched = Connections(ConnectionLimits(), listener.getsockname()[1])
        watched.start()
        try:
            wait_until(lambda: watched._listening, 30.0)
            watched._floods.halvings["127.0.0.9"] = ALL
            watched._filter()
            assert not gets_in(listener, "127.0.0.9")
        finally:
            watched.stop()
        assert not filtered(listener)
        assert gets_in(listener, "127.0.0.9")


def test_a_kernel_that_refuses_is_said_once_and_the_looks_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Here by a lock on the filter, which refuses as a sandbox does."""
    limits = ConnectionLimits(half_open_of_address=4)
    with (
        caplog.at_level(logging.WARNING),
        listening() as listener,
        contextlib.ExitStack() as stack,
    ):
        listener.setsockopt(socket.SOL_SOCKET, _SO_LOCK_FILTER, 1)
        with pytest.raises(PermissionError):
            syn_filter.attach(listener, {})
        watched = Connections(limits, listener.getsockname()[1])
        watched.start()
        stack.callback(watched.stop)

        def connect() -> bool:
            stack.enter_context(connecting(listener, "127.0.0.9"))
            with contextlib.suppress(BlockingIOError):
                stack.enter_context(listener.accept()[0])
            return sum(one.cut for one in list(watched._sockets.values())) > 2 * MOST

        wait_until(connect, 60.0)
        wait_until(lambda: watched._floods.halvings, 30.0)
        looks = watched._looks
        wait_until(lambda: watched._looks > looks + 2, 30.0)
        assert caplog.text.count("does not drop connections") == 1
        assert gets_in(listener, "127.0.0.8")
