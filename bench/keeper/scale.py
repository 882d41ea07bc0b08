"""HAKeeper at scale: what 100 stores with 10 000 shards cost the event loop that applies shard 0.

    python -m bench.keeper.scale
    python -m bench.keeper.scale --losses         # only a lost store and a lost zone

The state machine is the real one; the stores are simulated in virtual time (`scale_world`), so one
core and a few GiB are enough. Times are processor times of the applying thread. Every entry is
applied at a stretch, so the longest one is how long the event loop stands still.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.keeper import verbs as scale_verbs
from bench.keeper.world import HEARTBEAT_TICKS, STORE_TIMEOUT_TICKS, World
from logservice.bounds import HAKEEPER_TICKS_PER_S
from logservice.hakeeper import state as states
from logservice.hakeeper.answers import listing, queries
from logservice.hakeeper.repair import rehearsal
from logservice.hakeeper.wishes import impact
from logservice.ids import NO_REPLICA, ShardId, StoreId
from logservice.server.process import tune_interpreter

ROUNDS = 5
STRETCH_S = 0.020
"""How long the loop may stand still at a stretch."""


def main() -> None:
    """Measure, print one line for each figure, and write them down as JSON when asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--stores", type=int, default=100)
    parser.add_argument("--shards", type=int, default=10_000)
    parser.add_argument("--zones", type=int, default=3)
    parser.add_argument("--version", type=int, default=2, help="cluster version")
    parser.add_argument("--zone-ticks", type=int, default=100_000, help="give up after so many")
    parser.add_argument("--verbs", action="store_true", help="only what people ask for")
    parser.add_argument("--losses", action="store_true", help="only what is lost and repaired")
    parser.add_argument("--passes", action="store_true", help="only birth, quiet, changed reports")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    tune_interpreter()
    figures = measure(arguments)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


def measure(arguments: argparse.Namespace) -> dict[str, float]:
    """All figures by name."""
    figures: dict[str, float] = {}

    def note(name: str, value: float, unit: str) -> None:
        figures[f"{name}, {unit}"] = round(value, 3)
        sys.stdout.write(f"{name:58} {value:14.2f} {unit}\n")
        sys.stdout.flush()

    world = World(arguments.stores, arguments.zones, arguments.version)
    world.create(arguments.shards)
    gc.collect()
    gc.freeze()
    note("stores", len(world.state.stores), "")
    note("shards", len(world.state.shards), "")
    _stretches(world, note, "birth")
    if arguments.verbs:
        world.run(2 * STORE_TIMEOUT_TICKS)
        scale_verbs.measure(world, note)
        scale_verbs.crowded(arguments.version, note)
        return figures
    _passes(world, note)
    if arguments.passes:
        return figures
    if not arguments.losses:
        _forms(world, note)
        _traffic(world, note)
        scale_verbs.measure(world, note)
    _loss(world, note, "store", [sorted(world.stores)[len(world.stores) // 2]], 10_000)
    zone = [store.name for store in world.stores.values() if store.zone == "z1" and store.up]
    _loss(world, note, "zone", zone, arguments.zone_ticks)
    if not arguments.losses:
        scale_verbs.crowded(arguments.version, note)
    return figures


Note = Callable[[str, float, str], None]


def _passes(world: World, note: Note) -> None:
    """What a tick costs when nothing happens, and when one report changed."""
    world.run(2 * STORE_TIMEOUT_TICKS)
    world.spent.clear()
    world.run(2 * STORE_TIMEOUT_TICKS)
    ticks = sorted(world.spent["tick"].seconds)
    note("idle: a tick, median", 1e3 * ticks[len(ticks) // 2], "ms")
    note("idle: a tick, longest", 1e3 * ticks[-1], "ms")
    changed, each = [], []
    for number in range(1, 41):
        world.spent.clear()
        shard_id = ShardId(number * 7 % len(world.shards))
        shard = world.shards[shard_id]
        leader, shard.leader = shard.leader, NO_REPLICA
        world.elect(shard_id, leader)
        world.run(HEARTBEAT_TICKS)
        changed.append(max(world.spent["tick"].seconds))
        each += world.spent["tick"].seconds
    changed.sort()
    each.sort()
    note("one report changed: a pass, 99 %", 1e3 * each[len(each) * 99 // 100], "ms")
    note("one report changed: longest of ten, median", 1e3 * changed[len(changed) // 2], "ms")
    note("one report changed: a pass, longest", 1e3 * changed[-1], "ms")


def _forms(world: World, note: Note) -> None:
    """The snapshot and the views."""
    data = world.rsm.save_snapshot()
    note("snapshot: size", len(data) / 2**20, "MiB")
    note("snapshot: bytes for each shard", len(data) / len(world.state.shards), "B")
    _slices(note, "snapshot: save", world.rsm.save_in_slices)
    _slices(note, "snapshot: load", lambda: world.rsm.prepare(data))
    page = queries.GetDirectory(0, ShardId(0))
    note("directory: a page, first", _spent_ms(lambda: world.rsm.lookup(page)), "ms")
    note("directory: a page", _best_ms(lambda: world.rsm.lookup(page)), "ms")
    one = tuple(sorted(world.stores)[:1])
    zone = tuple(store.name for store in world.stores.values() if store.zone == "z1")
    state = world.state
    _slices(note, "check-impact of a store", lambda: impact.in_slices(state, one))
    _slices(note, "check-impact of a zone", lambda: impact.in_slices(state, zone))
    wanted = {"replicas": True, "leaders": True}
    _slices(note, "balance, dry run", lambda: rehearsal.in_slices(state, **wanted))
    closed = queries.ListShards(states=("closed",))
    _slices(note, "logs by their state", lambda: listing.in_slices(state, closed))
    view = world.rsm.lookup(queries.GetCluster())
    note("view of everything: make", _best_ms(lambda: world.rsm.lookup(queries.GetCluster())), "ms")
    encoded = queries.encode_answer(view)  # type: ignore[arg-type]
    note("view of everything: size", len(encoded) / 2**20, "MiB")
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    copy = states.load(data)
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    note("memory of the state for each shard", held / len(copy.shards), "B")


def _best_ms(work: Callable[[], object]) -> float:
    return min(_spent_ms(work) for _ in range(ROUNDS))


def _spent_ms(work: Callable[[], object]) -> float:
    started = time.thread_time()
    work()
    return 1e3 * (time.thread_time() - started)


def _slices(note: Note, what: str, work: Callable[[], Iterator[object]]) -> None:
    """The longest slice of some work, and all of it. The beginning is a slice of its own."""
    longest = whole = float("inf")
    for _ in range(ROUNDS):
        started = time.thread_time()
        steps = work()
        spent = [time.thread_time() - started]
        ended = False
        while not ended:
            started = time.thread_time()
            ended = next(steps, steps) is steps
            spent.append(time.thread_time() - started)
        longest, whole = min(longest, 1e3 * max(spent)), min(whole, 1e3 * sum(spent))
    note(f"{what}, longest slice", longest, "ms")
    note(f"{what}, whole", whole, "ms")


def _traffic(world: World, note: Note) -> None:
    """Heartbeats of a second, when nothing is written and when every replica is written to."""
    seconds = 5
    stores = len(world.stores)
    for busy in (False, True):
        world.busy = busy
        world.run(HEARTBEAT_TICKS)
        world.spent.clear()
        world.run(seconds * HAKEEPER_TICKS_PER_S)
        spent = world.spent["heartbeat full" if busy else "heartbeat"]
        load = "busy" if busy else "idle"
        note(f"{load}: a store sends", spent.asked_bytes / seconds / stores, "B/s")
        note(f"{load}: a store is answered", spent.answered_bytes / seconds / stores, "B/s")
        note(f"{load}: a heartbeat, longest", 1e3 * max(spent.seconds), "ms")
        note(f"{load}: a tick, longest", 1e3 * max(world.spent["tick"].seconds), "ms")
        whole = sum(sum(one.seconds) for one in world.spent.values())
        note(f"{load}: share of one core", 100 * whole / seconds, "%")
    world.busy = False
    world.run(HEARTBEAT_TICKS)


def _loss(world: World, note: Note, what: str, names: list[StoreId], most_ticks: int) -> None:
    """The repair after the loss of these stores."""
    world.spent.clear()
    world.lose(names)
    begun = world.tick
    lost = world.lost_voters()
    noticed = first = ended = 0
    while world.tick < begun + most_ticks:
        world.run(1)
        if not noticed and world.state.stores[names[0]].expired:
            noticed = world.tick
        if noticed and not first and world.state.operators:
            first = world.tick
        if first and world.tick % HEARTBEAT_TICKS == 0 and not world.lost_voters():
            ended = world.tick
            break
    note(f"{what} lost: voters lost", lost, "")
    note(f"{what} lost: noticed after", (noticed - begun) / HAKEEPER_TICKS_PER_S, "s")
    note(f"{what} lost: first repair after it was noticed", first - noticed, "ticks")
    if ended:
        note(f"{what} lost: whole again after", (ended - noticed) / HAKEEPER_TICKS_PER_S, "s")
    else:
        done = 100 * (1 - world.lost_voters() / lost)
        passed = (world.tick - noticed) / HAKEEPER_TICKS_PER_S
        note(f"{what} lost: repaired after {passed:.0f} s", done, "%")
    _stretches(world, note, f"{what} lost")


def _stretches(world: World, note: Note, what: str) -> None:
    """How long the entries took: the distribution of them, and what all of them took."""
    for kind, spent in sorted(world.spent.items()):
        took = sorted(spent.seconds)
        note(f"{what}: {kind}, how many", len(took), "")
        note(f"{what}: {kind}, median", 1e3 * took[len(took) // 2], "ms")
        note(f"{what}: {kind}, 99 %", 1e3 * took[len(took) * 99 // 100], "ms")
        note(f"{what}: {kind}, longest", 1e3 * took[-1], "ms")
        over = sum(one > STRETCH_S for one in took)
        note(f"{what}: {kind}, longer than {1e3 * STRETCH_S:.0f} ms", over, "")
        note(f"{what}: {kind}, mean", 1e3 * sum(took) / len(took), "ms")
    world.spent.clear()


if __name__ == "__main__":
    main()
