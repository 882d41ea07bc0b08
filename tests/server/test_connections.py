"""Who is cut, on real sockets: half-open ones, too many of one address, too many of an identity."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
from collections.abc import Callable, Iterator

import pytest
from logservice_wire.errors import Busy

from logservice import bounds
from logservice.server.edge.connections import (
    ConnectionLimits,
    Connections,
    crowded_pause_s,
    pause_s,
    peer_of,
    traffic_pause_s,
)
from logservice.server.edge.undelivered import HalfCalls
from tests.waiting import wait_until

Port = tuple[Connections, Callable[[str], socket.socket], list[socket.socket]]


@contextlib.contextmanager
def port(limits: ConnectionLimits) -> Iterator[Port]:
    """A port that accepts, how to connect to it from an address, and what was accepted.

    Whoever connects is seen before the next one does: of two that come between two looks nobody can
    say which is older, and the system gives them descriptors in any order.
    """
    accepted: list[socket.socket] = []
    made: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        number = listener.getsockname()[1]
        watched = Connections(limits, number)

        def connect(source: str) -> socket.socket:
            made.append(socket.create_connection(("127.0.0.1", number), 10, (source, 0)))
            accepted.append(listener.accept()[0])
            wait_until(lambda: watched.counts.open == len(made), 30.0)
            return made[-1]

        watched.start()
        try:
            yield watched, connect, accepted
        finally:
            watched.stop()
            for one in (*made, *accepted):
                one.close()


def ended(one: socket.socket) -> bool:
    one.setblocking(False)
    try:
        return one.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def name_of(one: socket.socket) -> str:
    host, number = one.getsockname()
    return f"ipv4:{host}:{number}"


def test_of_half_open_connections_the_oldest_goes() -> None:
    """Reaches ADDRESS_HALF_OPEN_MAX, made small."""
    with port(ConnectionLimits(half_open_of_address=3)) as (watched, connect, _):
        first = [connect("127.0.0.2") for _ in range(3)]
        wait_until(lambda: watched.counts.half_open == 3, 30.0)
        assert not any(map(ended, first))
        other = connect("127.0.0.3")
        newer = connect("127.0.0.2")
        wait_until(lambda: ended(first[0]), 30.0)
        assert not any(map(ended, (*first[1:], newer, other)))


@pytest.mark.parametrize("spent_s", [0.0, 0.01, 0.2, 30.0])
def test_a_look_comes_in_time_however_long_the_last_one_took(spent_s: float) -> None:
    """Reaches CONNECTIONS_LOOK_S_MAX, CONNECTIONS_LOOK_S_MIN and UNDELIVERED_LOOK_S_MAX."""
    assert bounds.CONNECTIONS_LOOK_S <= pause_s(spent_s) <= bounds.CONNECTIONS_LOOK_S_MAX
    assert bounds.CONNECTIONS_LOOK_S_MIN <= crowded_pause_s(spent_s) <= pause_s(spent_s)
    assert traffic_pause_s(spent_s) <= bounds.UNDELIVERED_LOOK_S_MAX


def test_half_open_connections_are_bounded_in_all() -> None:
    """Reaches HALF_OPEN_MAX, made small."""
    with port(ConnectionLimits(half_open=4)) as (watched, connect, _):
        made = [connect(f"127.0.0.{number}") for number in range(2, 6)]
        wait_until(lambda: watched.counts.half_open == 4, 30.0)
        made.append(connect("127.0.0.7"))
        wait_until(lambda: sum(map(ended, made)) == 1, 30.0)
        assert ended(made[0])


def test_who_was_heard_is_not_half_open() -> None:
    with port(ConnectionLimits(half_open_of_address=1)) as (watched, connect, _):
        client = connect("127.0.0.2")
        watched.heard(name_of(client), "me")
        strangers = [connect("127.0.0.2") for _ in range(3)]
        wait_until(lambda: sum(map(ended, strangers)) == 2, 30.0)
        assert not ended(client)


def test_of_an_address_the_newest_goes() -> None:
    """Reaches ADDRESS_CONNECTIONS_MAX, made small."""
    with port(ConnectionLimits(address=2)) as (watched, connect, _):
        made = []
        for _ in range(3):
            made.append(connect("127.0.0.2"))
            watched.heard(name_of(made[-1]), "me")
            wait_until(lambda: watched.counts.open == len(made), 30.0)
        wait_until(lambda: ended(made[2]), 30.0)
        assert not any(map(ended, made[:2]))


def test_an_identity_over_its_bound_is_told_and_cut() -> None:
    """Reaches IDENTITY_CONNECTIONS_MAX, made small."""
    with port(ConnectionLimits(identity=2)) as (watched, connect, accepted):
        made = [connect("127.0.0.2") for _ in range(3)]
        for one in made[:2]:
            watched.heard(name_of(one), "me")
            watched.heard(name_of(one), "me")
        with pytest.raises(Busy):
            watched.heard(name_of(made[2]), "me")
        wait_until(lambda: ended(made[2]), 30.0)
        assert not any(map(ended, made[:2]))
        other = connect("127.0.0.2")
        watched.heard(name_of(other), "another")
        # A place is free again when a connection has ended: here, when the far end is closed, too.
        watched.cut(name_of(made[0]), "test")
        wait_until(lambda: ended(made[0]), 30.0)
        again = connect("127.0.0.2")

        def takes() -> bool:
            with contextlib.suppress(Busy):
                watched.heard(name_of(again), "me")
                return True
            return False

        accepted[0].close()
        wait_until(takes, 30.0)


def test_lower_bounds_cut_nothing_that_is_there() -> None:
    """Of an identity and of an address; what comes is refused until there are fewer."""
    with port(ConnectionLimits(address=4, identity=4)) as (watched, connect, accepted):
        made = [connect("127.0.0.2") for _ in range(3)]
        for one in made:
            watched.heard(name_of(one), "me")
        looks = watched._looks
        wait_until(lambda: watched._looks > looks + 1, 30.0)
        watched.limit(lambda identity: 1 if identity == "me" else 9, 2)
        newer = connect("127.0.0.2")
        wait_until(lambda: ended(newer), 30.0)
        elsewhere = connect("127.0.0.3")
        with pytest.raises(Busy, match="more than 1 connections"):
            watched.heard(name_of(elsewhere), "me")
        wait_until(lambda: ended(elsewhere), 30.0)
        assert not any(map(ended, made))
        for one in made:
            watched.heard(name_of(one), "me")
        another = connect("127.0.0.3")
        watched.heard(name_of(another), "you")
        # When enough of them are gone, the address has room again.
        for one in made[:2]:
            watched.cut(name_of(one), "test")
            wait_until(lambda one=one: ended(one), 30.0)
        for one in accepted[:2]:
            one.close()

        def comes() -> bool:
            one = connect_again()
            looks = watched._looks
            wait_until(lambda: watched._looks > looks + 1, 30.0)
            return not ended(one)

        def connect_again() -> socket.socket:
            one = socket.create_connection(accepted[-1].getsockname(), 10, ("127.0.0.2", 0))
            made.append(one)
            return one

        wait_until(comes, 30.0)
        for one in made[3:]:
            one.close()


def test_a_number_that_belongs_to_another_socket_by_now_is_left_alone() -> None:
    """INV-CONN-1."""
    with port(ConnectionLimits()) as (watched, connect, _):
        connect("127.0.0.2")
        wait_until(lambda: bool(watched._sockets), 30.0)
        known = next(iter(watched._sockets.values()))
        mine, theirs = socket.socketpair()
        with mine, theirs:
            reused = dataclasses.replace(known, descriptor=mine.fileno())
            watched._shut(reused, "test")
            assert not reused.cut
            assert not ended(theirs)
            watched._shut(known, "test")
            assert known.cut


def test_others_are_never_touched() -> None:
    """INV-CUT-1: a socket of this process that is no connection of the port is left alone, whatever
    it is.
    """
    with (
        port(ConnectionLimits(half_open=0, half_open_of_address=0)) as (_, connect, _),
        socket.create_server(("127.0.0.1", 0)) as elsewhere,
    ):
        mine = socket.create_connection(elsewhere.getsockname())
        theirs = elsewhere.accept()[0]
        pair = socket.socketpair()
        doomed = connect("127.0.0.2")
        wait_until(lambda: ended(doomed), 30.0)
        assert not any(map(ended, (mine, theirs, *pair)))
        for one in (mine, theirs, *pair):
            one.close()


def test_it_works_without_a_descriptor_left() -> None:
    with port(ConnectionLimits(half_open_of_address=1)) as (watched, connect, _):
        made = [connect("127.0.0.2") for _ in range(2)]
        held = []
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        try:
            wait_until(lambda: sum(map(ended, made)) == 1, 30.0)
            assert watched.counts.open
        finally:
            for one in held:
                os.close(one)


class _Waiting(HalfCalls):
    """A call waits for its request all the time."""

    def oldest_s(self) -> float:
        return 0.0


def test_what_no_call_received_is_bounded() -> None:
    limits = ConnectionLimits(undelivered_of_identity=100_000)
    with port(limits) as (watched, connect, accepted):
        watched.half_calls = _Waiting()
        greedy, modest, served = (connect("127.0.0.2") for _ in range(3))
        for one in (greedy, modest, served):
            watched.heard(name_of(one), "me")
        modest.sendall(bytes(60_000))
        served.sendall(bytes(200_000))
        watched.delivered(name_of(served)).add(200_000)
        wait_until(lambda: watched.counts.waiting_bytes > 0, 30.0)
        greedy.sendall(bytes(100_000))
        wait_until(lambda: ended(greedy), 30.0)
        assert not any(map(ended, (modest, served)))
        assert len(accepted) == 3


def test_of_strangers_the_address_counts() -> None:
    with port(ConnectionLimits(undelivered_of_identity=100_000)) as (watched, connect, _):
        watched.half_calls = _Waiting()
        mine, other = [connect("127.0.0.2") for _ in range(2)], connect("127.0.0.3")
        for one in (*mine, other):
            one.sendall(bytes(70_000))
        wait_until(lambda: sum(map(ended, mine)) == 1, 30.0)
        assert not ended(other)
        assert watched.counts.open


@pytest.mark.parametrize(
    ("name", "peer"),
    [
        ("ipv4:127.0.0.1:5", ("127.0.0.1", 5)),
        ("ipv6:%5B::1%5D:5", ("::1", 5)),
        ("ipv6:[::ffff:10.0.0.1]:5", ("10.0.0.1", 5)),
        ("ipv6:%5Bfe80::1%25eth0%5D:7", ("fe80::1", 7)),
        ("unix:a", None),
        ("", None),
    ],
)
def test_names_of_grpc(name: str, peer: tuple[str, int] | None) -> None:
    assert peer_of(name) == peer


def test_nobody_is_looked_for_while_nobody_is_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reaches CONNECTIONS_REST_S, made long: no look comes by itself. Who connects and a call end
    the rest.
    """
    monkeypatch.setattr(bounds, "CONNECTIONS_REST_S", 3600.0)
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        number = listener.getsockname()[1]
        watched = Connections(ConnectionLimits(), number)
        looks = 0
        look = watched._look

        def counted() -> None:
            nonlocal looks
            look()
            looks += 1

        monkeypatch.setattr(watched, "_look", counted)
        watched.start()
        with contextlib.ExitStack() as stack:
            stack.callback(watched.stop)
            wait_until(lambda: looks == 1, 30.0)
            first = stack.enter_context(socket.create_connection(("127.0.0.1", number), 10))
            wait_until(lambda: looks == 2, 30.0)  # it waits to be accepted
            assert watched.counts.open == 0
            stack.enter_context(listener.accept()[0])
            watched.heard(name_of(first), "me")
            wait_until(lambda: watched.counts.open == 1, 30.0)
            wait_until(lambda: looks > 5, 30.0)  # while somebody is there it goes on looking
