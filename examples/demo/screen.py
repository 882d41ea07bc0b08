"""The demo's output: steps with their times, a bar while something is waited for, tables.

A step that takes longer than its limit fails the demo; nothing waits for ever.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from logservice_wire.v1 import hakeeper_pb2
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from examples.demo.watch import Watch, shard_is_full

POLL_S = 0.1
WIDTH = 120


class DemoFailed(Exception):
    """A check did not hold."""


def check(holds: bool, what: str) -> None:
    """Fail the demo unless it holds."""
    if not holds:
        raise DemoFailed(what)


@dataclass(slots=True)
class Step:
    """One line of the story; `say` adds what happened."""

    title: str
    began: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    remarks: list[str] = field(default_factory=list)

    def say(self, remark: str) -> None:
        """Add to the line and to the summary."""
        self.remarks.append(remark)


class Screen:
    """Everything that is printed."""

    def __init__(self) -> None:
        # Without a terminal (CI) the width is unknown; tables of eighty columns are hard to read.
        self.console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
        self.steps: list[Step] = []

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Time a step and print it when it is over."""
        step = Step(title)
        yield step
        step.seconds = time.monotonic() - step.began
        self.steps.append(step)
        remarks = "; ".join(step.remarks)
        self.console.print(f"[green]*[/] [bold]{title}[/] ({step.seconds:.1f} s): {remarks}")

    def wait(self, what: str, progress: Callable[[], tuple[int, int]], *, limit_s: float) -> float:
        """Show a bar until `progress` says (done, total) with done >= total; the seconds it took.

        Raises DemoFailed at the limit.
        """
        began = time.monotonic()
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(
            *columns,
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        ) as bar:
            task = bar.add_task(what, total=None)
            while True:
                done, total = progress()
                bar.update(task, completed=done, total=total)
                seconds = time.monotonic() - began
                if done >= total:
                    return seconds
                if seconds > limit_s:
                    raise DemoFailed(f"{what}: {done} of {total} after {limit_s:.0f} s")
                time.sleep(POLL_S)

    def cluster(self, watch: Watch) -> None:
        """The table of stores and shards."""
        state = watch.cluster()
        if state is None:
            self.console.print("no store answers for the cluster")
            return
        alive = {store.store_id for store in state.stores if not store.expired}
        table = Table("store", title=f"cluster, HAKeeper {state.state}", title_justify="left")
        for shard in state.shards:
            mark = "full" if shard_is_full(shard, alive) else "[yellow]not full[/]"
            table.add_column(f"shard {shard.shard_id} ({mark})")
        for store in sorted(state.stores, key=lambda store: store.store_id):
            name = store.store_id + (" [red](lost)[/]" if store.expired else "")
            cells = []
            for shard in state.shards:
                found = [r for r in shard.replicas if r.store_id == store.store_id]
                cells.append(", ".join(_replica(shard.leader_store, r) for r in found))
            table.add_row(name, *cells)
        self.console.print(table)

    def summary(self) -> None:
        """Everything that happened and how long it took."""
        table = Table("step", "seconds", "what happened", title="summary", title_justify="left")
        for step in self.steps:
            table.add_row(step.title, f"{step.seconds:.1f}", "\n".join(step.remarks))
        self.console.print(table)


def _replica(leader_store: str, replica: hakeeper_pb2.ReplicaInfo) -> str:
    """Leader, voter or learner, and how far it is."""
    name = "leader" if replica.store_id == leader_store else replica.role
    silent = "" if replica.reported else ", silent"
    return f"{name} {replica.replica_id}, LSN {replica.applied_lsn}{silent}"
