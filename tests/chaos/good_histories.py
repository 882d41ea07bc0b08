"""Random histories that a correct log can produce: the checker must accept them.

A log without faults is played in one thread. Every operation gets a moment of invocation, a moment
of effect and a moment of return, in this order; other operations take effect between them. Clients
lose answers (unknown outcome), and the operation took effect or not. Stale reads come from replicas
that lag.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from logservice.sim.history import Append, Operation, Outcome, Read, Run, Truncate

REPLICAS = ("store-1", "store-2", "store-3")


@dataclass(slots=True)
class _Log:
    runs: list[Run] = field(default_factory=list)
    first_lsn: int = 1
    next_lsn: int = 1

    def put(self, count: int, batch: str = "", gap: str = "") -> int:
        lsn = self.next_lsn
        self.runs.append(Run(lsn, count, batch, 0, gap))
        self.next_lsn += count
        return lsn

    def read(self, lsn: int, runs_max: int, applied: int) -> tuple[Run, ...]:
        found = [run for run in self.runs if run.lsn + run.count > lsn and run.lsn <= applied]
        return tuple(found[:runs_max])


class _Player:
    def __init__(self, seed: int, steps: int) -> None:
        self.chance = random.Random(seed)
        self.steps = steps
        self.log = _Log()
        self.operations: list[Operation] = []
        self.now = 0.0
        self.batches = 0
        self.streams = {f"c{number}": 1 for number in range(4)}
        self.sequences = dict.fromkeys(self.streams, 0)
        self.broken: set[str] = set()
        self.busy_until = dict.fromkeys(self.streams, 0.0)

    def play(self) -> list[Operation]:
        for _ in range(self.steps):
            self.now += self.chance.random()
            draw = self.chance.random()
            if draw < 0.6:
                self._append()
            elif draw < 0.95:
                self._read()
            else:
                self._truncate()
        self._finals()
        self.chance.shuffle(self.operations)
        return self.operations

    def _span(self) -> tuple[float, float]:
        """Moments of invocation and return around the present moment of effect."""
        return self.now - self.chance.expovariate(2.0), self.now + self.chance.expovariate(2.0)

    def _append(self) -> None:
        client = self.chance.choice(list(self.streams))
        if client in self.broken:
            self.broken.discard(client)
            self.streams[client] += 1
            self.sequences[client] = 0
        invoked, returned = self._span()
        count = self.chance.choice((1, 1, 3, 50))
        self.batches += 1
        batch = f"b{self.batches}"
        self.sequences[client] += 1
        stream = f"{client}/{self.streams[client]}"
        outcome = self.chance.choices(list(Outcome), (0.85, 0.07, 0.08))[0]
        lsn = 0
        if outcome is Outcome.FAILED:
            if self.chance.random() < 0.5:
                self.log.put(count, gap=self.chance.choice(("FENCED", "WRONG_EXPECTED_LSN")))
        elif outcome is Outcome.OK or self.chance.random() < 0.5:
            lsn = self.log.put(count, batch)
        if outcome is not Outcome.OK:
            self.broken.add(client)
            lsn = 0
        self.operations.append(
            Append(
                client,
                batch,
                count,
                invoked,
                returned,
                outcome,
                lsn,
                stream,
                self.sequences[client],
            )
        )

    def _read(self) -> None:
        invoked, returned = self._span()
        log = self.log
        linearizable = self.chance.random() < 0.7
        applied = log.next_lsn - 1
        first = log.first_lsn
        if not linearizable:
            invoked = min(invoked, returned)
            ends = [run.lsn + run.count - 1 for run in log.runs[-5:]]
            applied = self.chance.choice([end for end in ends if end >= first - 1] or [applied])
        replica = self.chance.choice(REPLICAS)
        lsn = self.chance.randint(max(1, first - 2), applied + 3)
        error, next_lsn = "", lsn
        runs: tuple[Run, ...] = ()
        if lsn < first:
            error, applied = "TRUNCATED", 0
        elif lsn > applied + 1:
            error, first = "BEYOND_TAIL", 0
        else:
            runs = log.read(lsn, self.chance.choice((1, 3, 1000)), applied)
            if runs:
                next_lsn = runs[-1].lsn + runs[-1].count
        self.operations.append(
            Read(
                "r",
                replica,
                invoked,
                returned,
                lsn,
                runs,
                next_lsn,
                first,
                applied,
                linearizable,
                False,
                error,
            )
        )

    def _truncate(self) -> None:
        invoked, returned = self._span()
        log = self.log
        if log.next_lsn - log.first_lsn < 2:
            return
        lsn = self.chance.randint(log.first_lsn, log.next_lsn - 1)
        outcome = self.chance.choice((Outcome.OK, Outcome.OK, Outcome.UNKNOWN, Outcome.FAILED))
        held = self.chance.randint(log.first_lsn, lsn)
        truncated = 0
        if outcome is Outcome.OK or (outcome is Outcome.UNKNOWN and self.chance.random() < 0.5):
            log.first_lsn = held + 1
            truncated = held if outcome is Outcome.OK else 0
        self.operations.append(Truncate("t", lsn, invoked, returned, outcome, truncated))

    def _finals(self) -> None:
        self.now += 100
        log = self.log
        for replica in REPLICAS:
            applied = log.next_lsn - 1
            runs = log.read(log.first_lsn, 10**9, applied)
            self.operations.append(
                Read(
                    "final",
                    replica,
                    self.now,
                    self.now + 1,
                    log.first_lsn,
                    runs,
                    log.next_lsn,
                    log.first_lsn,
                    applied,
                    False,
                    True,
                )
            )


def good_history(seed: int, steps: int = 300) -> list[Operation]:
    """The same history for the same seed, in no particular order."""
    return _Player(seed, steps).play()
