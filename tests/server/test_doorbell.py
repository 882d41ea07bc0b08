"""What ends a sleep at the doorbell: a ring, and who connects; what does not."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from logservice.server.edge.doorbell import Doorbell
from tests.waiting import wait_until

HOUR_S = 3600.0


@pytest.fixture
def bell() -> Iterator[Doorbell]:
    with contextlib.closing(Doorbell()) as made:
        yield made


def test_a_ring_ends_the_sleep_and_one_that_comes_early_ends_the_next(bell: Doorbell) -> None:
    bell.ring()
    bell.ring()
    assert bell.sleep(HOUR_S)
    assert not bell.sleep(0.0)
    threading.Timer(0.05, bell.ring).start()
    assert bell.sleep(HOUR_S, arrivals=1)


def test_who_connects_ends_the_sleep_of_one_that_waits_for_arrivals(bell: Doorbell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        number = listener.fileno()
        bell.watch(number)
        bell.watch(number)  # nothing happens
        with socket.create_connection(listener.getsockname(), 10):
            assert not bell.sleep(0.0)  # it looks for rings only
            assert not bell.sleep(HOUR_S, arrivals=1)
            assert not bell.sleep(0.0, arrivals=1)  # each is told once
        with socket.create_connection(listener.getsockname(), 10):
            assert not bell.sleep(HOUR_S, arrivals=1)
    bell.watch(number)  # it is closed


def test_so_many_arrivals_end_the_sleep_and_a_ring_ends_it_before(bell: Doorbell) -> None:
    """Reaches ARRIVALS_MAX, made small."""
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as stack:
        bell.watch(listener.fileno())
        ended = threading.Event()

        def sleep() -> None:
            assert not bell.sleep(HOUR_S, arrivals=3)
            ended.set()

        def connect() -> bool:
            stack.enter_context(socket.create_connection(listener.getsockname(), 10))
            stack.enter_context(listener.accept()[0])
            return ended.is_set()

        thread = threading.Thread(target=sleep)
        thread.start()
        connect()
        assert not ended.is_set()
        wait_until(connect, 30.0)
        thread.join()
        bell.ring()
        assert bell.sleep(HOUR_S, arrivals=3)
        assert not bell.sleep(0.0, arrivals=3)


def test_nothing_is_written_or_closed_after_the_end() -> None:
    """The number of its descriptor may belong to a file by then."""
    ended = Doorbell()
    ended.close()
    one, other = socket.socketpair()
    with one, other:
        ended.ring()
        ended.close()
        for end in (one, other):
            end.setblocking(False)
            with pytest.raises(BlockingIOError):
                end.recv(8)
