"""What ends a sleep at the doorbell: a ring, and who connects; what does not."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from logservice.server.edge.doorbell import Doorbell

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
    assert bell.sleep(HOUR_S, arrivals=True)


def test_who_connects_ends_the_sleep_of_one_that_waits_for_arrivals(bell: Doorbell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        number = listener.fileno()
        bell.watch(number)
        bell.watch(number)  # nothing happens
        with socket.create_connection(listener.getsockname(), 10):
            assert not bell.sleep(0.0)  # it looks for rings only
            assert not bell.sleep(HOUR_S, arrivals=True)
            assert not bell.sleep(0.0, arrivals=True)  # each is told once
        with socket.create_connection(listener.getsockname(), 10):
            assert not bell.sleep(HOUR_S, arrivals=True)
    bell.watch(number)  # it is closed


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
