"""The cost of the consensus core by itself: no disk, no network, no event loop.

    python -m bench.parts.raft [--seconds 2]

The bench prints appends per second through a group of three cores in memory, and what a tick costs
when 1, 1 000 or 10 000 cores are idle. The settings are the service's.

"1 to a proposal" proposes an entry, runs all three replicas until the leader has applied it, and
proposes the next: this is the price of a whole round of the protocol. More to a proposal is the
service under load, where everything that waited for a shard is proposed at once. Every entry goes
through all three logs, which are compacted on the way, outside of the measured time.

The cost of a tick is given for followers that hear a leader (they count, nothing else), and for
leaders of three, with the heartbeats that they send and the answers that come back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import click
from rich.console import Console
from rich.table import Table

from logservice.entry import EntryKind, Proposal
from logservice.hard_state import HardState
from logservice.ids import Index, Lsn, ReplicaId, Term
from logservice.membership import Membership
from logservice.raft.config import RaftConfig
from logservice.raft.core import Raft
from logservice.raft.log.memory_storage import MemoryStorage
from logservice.raft.messages import Heartbeat, HeartbeatResponse, Message
from logservice.snapshot import Snapshot

ELECTION_TICKS = 20
HEARTBEAT_TICKS = 2
PER_PROPOSAL = (1, 16, 256)
PAYLOAD_BYTES = 256
IDLE = (1, 1_000, 10_000)
COMPACT_EVERY = 4_096
"""Entries between compactions: logs in memory would grow for ever."""

ME, SECOND, THIRD = ReplicaId(1), ReplicaId(2), ReplicaId(3)
START = Snapshot(Index(1), Term(1), Lsn(1), Membership(voters=(ME, SECOND, THIRD)), b"")


class Core:
    """One replica with its storage. The shell's duties are done at once: there is no disk to wait
    for.
    """

    __slots__ = ("id", "raft", "storage")

    def __init__(self, replica: ReplicaId) -> None:
        self.id = replica
        self.storage = MemoryStorage(START)
        self.raft = Raft(
            RaftConfig(
                replica,
                ELECTION_TICKS,
                HEARTBEAT_TICKS,
                guard_changes=True,
                commit_notice_waits=True,
            ),
            self.storage,
            HardState(),
            START.membership,
            START.index,
            lambda _: 0,
        )

    def pump(self) -> list[Message]:
        """Carry out every Ready; return the messages to others."""
        raft = self.raft
        sent: list[Message] = []
        while (ready := raft.take_ready()) is not None:
            self.storage.save(ready.hard_state, ready.entries, ready.snapshot)
            sent += ready.messages
            sent += [m for m in ready.messages_after_append if m.to != self.id]
            raft.persisted(ready)
            if ready.committed_entries:
                raft.applied(ready.committed_entries[-1].index)
        return sent

    def compact(self) -> None:
        """Compact the log behind the applied index."""
        index, storage = self.raft.applied_index, self.storage
        term, next_lsn = storage.term(index), storage.next_lsn(index)
        storage.install(replace(START, index=index, term=term, next_lsn=next_lsn))


class Trio:
    """Three replicas of one shard; the first leads."""

    def __init__(self) -> None:
        self.cores = {replica: Core(replica) for replica in (ME, SECOND, THIRD)}
        self.leader = self.cores[ME].raft
        self.leader.campaign()
        self.settle()

    def settle(self) -> None:
        """Run all three until no message is under way."""
        moving = True
        while moving:
            moving = False
            for core in self.cores.values():
                for message in core.pump():
                    moving = True
                    self.cores[message.to].raft.step(message)

    def append(self, proposals: Sequence[Proposal]) -> None:
        """Propose, and return once the leader has applied it."""
        self.leader.propose(proposals)
        self.settle()

    def compact(self) -> None:
        """Let the followers apply everything, and compact every log."""
        self.leader.tick()
        self.settle()
        for core in self.cores.values():
            core.compact()


def appends_per_second(per_proposal: int, seconds: float) -> float:
    """Entries per second that go through a group of three."""
    trio = Trio()
    proposals = [Proposal(EntryKind.BLOCK, 1, b"x" * PAYLOAD_BYTES)] * per_proposal
    rounds = max(COMPACT_EVERY // per_proposal, 1)
    done, spent = 0, 0.0
    while spent < seconds:
        began = time.perf_counter()
        for _ in range(rounds):
            trio.append(proposals)
        spent += time.perf_counter() - began
        done += rounds * per_proposal
        trio.compact()
    return done / spent


def idle_follower() -> Core:
    """A follower of replica 2 in term 1."""
    core = Core(ME)
    hear_leader(core)
    return core


def hear_leader(core: Core) -> None:
    """Give the core a heartbeat, so that no election is due."""
    core.raft.step(Heartbeat(to=ME, sender=SECOND, term=Term(1), commit=Index(1)))
    core.pump()


def idle_leader() -> Core:
    """A leader of three members; its no-op is committed, and it has nothing to do."""
    trio = Trio()
    trio.leader.tick()
    trio.settle()
    return trio.cores[ME]


def leader_tick(core: Core) -> None:
    """Do a tick of a leader, and answer its heartbeats."""
    raft = core.raft
    raft.tick()
    for m in core.pump():
        raft.step(HeartbeatResponse(to=ME, sender=m.to, term=raft.term))


def tick_us(make: Callable[[], Core], tick: Callable[[Core], None], count: int) -> float:
    """Microseconds for one tick of `count` cores, the least of several runs of four ticks."""
    cores = [make() for _ in range(count)]
    best = float("inf")
    for _ in range(max(3, 2_000 // count)):
        began = time.perf_counter()
        for _ in range(2 * HEARTBEAT_TICKS):
            for core in cores:
                tick(core)
        best = min(best, time.perf_counter() - began)
        for core in cores:
            if core.raft.leader == SECOND:
                hear_leader(core)
    return best / (2 * HEARTBEAT_TICKS) * 1e6


def append_table(seconds: float) -> Table:
    """Appends per second by entries to a proposal."""
    table = Table(title=f"{PAYLOAD_BYTES} B through three cores")
    table.add_column("to a proposal")
    table.add_column("appends/s", justify="right")
    table.add_column("us each", justify="right")
    for per_proposal in PER_PROPOSAL:
        rate = appends_per_second(per_proposal, seconds)
        table.add_row(f"{per_proposal}", f"{rate:,.0f}", f"{1e6 / rate:.1f}")
    return table


def tick_table(counts: Sequence[int]) -> Table:
    """The cost of a tick by the number of idle cores."""
    table = Table(title="one tick of idle cores, us")
    for heading in ("cores", "followers", "each", "leaders of 3", "each"):
        table.add_column(heading, justify="right")
    for count in counts:
        followers = tick_us(idle_follower, lambda core: core.raft.tick(), count)
        leaders = tick_us(idle_leader, leader_tick, count)
        table.add_row(
            f"{count:,}",
            f"{followers:,.1f}",
            f"{followers / count:.2f}",
            f"{leaders:,.1f}",
            f"{leaders / count:.2f}",
        )
    return table


@click.command()
@click.option("--seconds", default=2.0, show_default=True, help="Per row of appends.")
def main(seconds: float) -> None:
    """Measure the consensus core in memory."""
    console = Console()
    console.print(append_table(seconds))
    console.print(tick_table(IDLE))


if __name__ == "__main__":
    main()
