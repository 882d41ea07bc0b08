"""What the bench asks of a system that it compares us with.

A peer is started by its module's ``running(directory)``, a context manager whose processes and
ports are its own and which ends all of them. Who measures enters it, takes samples for any number
of workloads, in any order, and leaves it:

* **At most one peer runs at a time**, beside our own stores. Idle members of a consensus group are
  not free (ticks, heartbeats, collectors of garbage), and seven of them on two cores would be
  measured with every row. They are not stopped by a signal either: a leader that was stopped and
  goes on has lost its term, and the next sample would measure an election.
* So the order is peer by peer: start it, then for each row ours and the peer's in turns, A B A B,
  then end it. A start takes from a second (Dragonboat) to some ten (a JVM), once a peer and not
  once a row. The first start ever builds or fetches the peer, which takes minutes.
* ``running`` blocks and must be entered outside an event loop. ``sample`` opens its own connections
  and closes them before it returns, so that samples may run in different event loops.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench.load.closed_loop import Sample


@dataclass(frozen=True, slots=True)
class Workload:
    """What callers do: every caller has one request under way, of one record."""

    callers: int
    size: int
    """Bytes of a record or value."""
    shards: int = 1
    connections: int = 1
    """1: all callers share one client. Else as many as callers: a connection each, unary."""


class Peer(Protocol):
    """A running system of three replicas on this machine."""

    @property
    def name(self) -> str:
        """With the version, as a table prints it: "etcd 3.6.5", "Dragonboat v4, pebble"."""

    @property
    def acks(self) -> str:
        """What an ack means, in words: "fdatasync on a majority", "before fsync"."""

    def takes(self, workload: Workload) -> bool:
        """Whether it has something comparable."""

    async def sample(self, workload: Workload, *, warmup_s: float, seconds: float) -> Sample:
        """One measured window. `Lost` when something acked, warm-up included, is not there then."""


Running = Callable[[Path], AbstractContextManager[Peer]]
"""Starts the peer with its data below a directory that exists and is empty; or `Unavailable`."""


class Unavailable(Exception):
    """The peer cannot be had here; the text says why, for a person."""


class Lost(Exception):
    """The peer acked what it does not have."""
