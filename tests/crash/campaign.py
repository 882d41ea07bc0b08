"""One scenario is recorded and taken apart into crash states; every state is opened and judged.

A state passes when the store opens and shows exactly what was acked, and the step under way either
whole or not at all. The store must also call nothing damaged, show the same after another restart
and without its derived index, and take appends. The recording itself is checked: the tree that its
calls add up to must be the directory that is really there, byte for byte; if it is not, the
recorder missed a call.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from logservice.logdb.recovery import offline
from tests.crash.disk import Disk, Tree, fingerprint
from tests.crash.perform import EXPORTS, exports_in, world_in
from tests.crash.plain import Key, Picture, look
from tests.crash.scenarios import script_of
from tests.crash.script import Expected, Script
from tests.crash.states import states
from tests.crash.trace import calls, record
from tests.logdb.helpers import World, entry, update

WITNESS: Key = (9999, 1)
"""The replica that appends after the crash."""
THOROUGH = 4
"""One state in four is also opened twice more, without its index, and by the offline tools."""


@dataclass(frozen=True, slots=True)
class State:
    """A disk after a crash. name: what replays it. before, after: the steps whose pictures are
    allowed.
    """

    name: str
    what: str
    tree: Tree
    before: int
    after: int


@dataclass(slots=True)
class Outcome:
    """The counts of one scenario.

    states: distinct states that were opened. built: all states, equal ones included. failures: the
    lines that replay what failed.
    """

    scenario: str
    calls: int = 0
    moments: int = 0
    built: int = 0
    states: int = 0
    failures: list[str] = field(default_factory=list)


def work_directory() -> Path:
    """A new directory, in memory where that is possible.

    States are many, small and gone at once, and the stores that judge them sync as often as any.
    """
    memory = Path("/dev/shm")
    inside = memory if os.access(memory, os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix="logservice-crash-", dir=inside))


def ignored(path: str) -> bool:
    """Whether a path is one of LevelDB's log or lock files, which no store reads."""
    return path.rpartition("/")[2] in ("LOG", "LOG.old", "LOCK")


def record_scenario(name: str, work: Path, without: str = "") -> tuple[Path, Path]:
    """Perform a scenario under strace; return the trace and the directory that it left."""
    trace, root, code = record_process(name, work, without)
    assert code == 0, f"{name} ended with exit code {code}"
    return trace, root


def record_process(
    name: str, work: Path, without: str = "", inject: str = ""
) -> tuple[Path, Path, int]:
    """Perform a scenario under strace, perhaps with a fault; return the exit code as well."""
    root, trace = work / f"{name}.data", work / f"{name}.trace"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-m", "tests.crash.perform", name, str(root), without]
    return trace, root, record(command, trace, environment, inject)


def crash_states(
    trace: Path, root: Path, outcome: Outcome, *, pairs: bool = False
) -> Iterator[State]:
    """Every distinct state of a recording, in order."""
    disk = Disk(str(root), ignored)
    seen: set[tuple[int, int, int]] = set()
    before = after = 0
    for number, call in enumerate(calls(trace)):
        outcome.calls += 1
        if call.name == "write" and call.strings[0].startswith(b"@@"):
            word, step = call.strings[0].split()
            before, after = int(step), int(step) + 1
            if word == b"@@end":
                before = after
        if not disk.follow(call):
            continue
        outcome.moments += 1
        for how, tree in states(disk, pairs=pairs):
            outcome.built += 1
            key = (fingerprint(tree), before, after)
            if key not in seen:
                seen.add(key)
                name = f"{outcome.scenario}:{number}:{how}"
                yield State(name, str(call), tree, before, after)
    left = {path: data for path, data in tree_of(root).items() if not ignored(path)}
    assert disk.cache() == left, "the recorded calls do not add up to the directory"


def tree_of(root: Path) -> Tree:
    """The tree below a directory."""
    tree: Tree = {}
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        for name in os.listdir(root / inside):
            path = root / inside / name
            below = f"{inside}{name}"
            tree[below] = None if path.is_dir() else path.read_bytes()
            if path.is_dir():
                waiting.append(below + "/")
    return tree


def put(tree: Tree, root: str) -> None:
    """Make `root` that tree, and nothing else."""
    shutil.rmtree(root, ignore_errors=True)
    os.mkdir(root)
    for path in sorted(tree):
        data = tree[path]
        if data is None:
            os.mkdir(f"{root}/{path}")
            continue
        handle = os.open(f"{root}/{path}", os.O_WRONLY | os.O_CREAT, 0o640)
        os.write(handle, data)
        os.close(handle)


def judge(state: State, script: Script, root: str) -> None:
    """Open the state. It raises AssertionError, or what the store raised, if it does not pass."""
    put(state.tree, root)
    allowed = script.expected[state.before : state.after + 1]
    thorough = zlib.crc32(state.name.encode()) % THOROUGH == 0
    world = world_in(root, script)
    seen = _open_once(world, allowed)
    _judge_exports(root, allowed)
    if not thorough:
        return
    _judge_again(world, seen)
    shutil.rmtree(f"{root}/index")
    _judge_again(world, seen)
    put(state.tree, root)
    _judge_offline(world, root, seen)


def judge_opening(
    root: str,
    script: Script,
    first: int,
    last: int,
    *,
    may_be_faulty: bool = False,
    exports_from: int | None = None,
) -> None:
    """Open a store that ended in one of the steps between the two.

    `exports_from`: the first step whose exports may still be there.
    """
    allowed = script.expected[first : last + 1]
    _open_once(world_in(root, script), allowed, may_be_faulty=may_be_faulty)
    _judge_exports(root, script.expected[exports_from or first : last + 1])


def _open_once(world: World, allowed: list[Expected], *, may_be_faulty: bool = False) -> Picture:
    db = world.open()
    try:
        assert not db.recovery_report.damages, db.recovery_report.damages
        seen = look(db, may_be_faulty=may_be_faulty)
        if not may_be_faulty or db.stats().faulty_replicas == 0:
            pictures = [wanted.picture for wanted in allowed]
            assert seen in pictures, differences(seen, pictures[0])
        for key, commit in seen.commits.items():
            ranges = [wanted.commits[key] for wanted in allowed if key in wanted.commits]
            low, high = min(low for low, _ in ranges), max(high for _, high in ranges)
            assert low <= commit <= high, f"commit of {key} is {commit}, not {low} to {high}"
        db.commit([update(*WITNESS, [entry(1)], hard=(1, 1, 1))])
        for key, found in seen.replicas.items():
            term = max([found.term, *(int(old.term) for old in found.entries)])
            db.commit([update(*key, [entry(found.first_index + len(found.entries), max(term, 1))])])
            break
        return look(db, may_be_faulty=may_be_faulty)
    finally:
        world.close(db)


def _judge_again(world: World, wanted: Picture) -> None:
    db = world.open()
    try:
        assert not db.recovery_report.damages, db.recovery_report.damages
        seen = look(db)
        assert seen == wanted, f"another opening: {differences(seen, wanted)}"
    finally:
        world.close(db)


def _judge_exports(root: str, allowed: list[Expected]) -> None:
    if not any(wanted.exports for wanted in allowed):
        return
    exports = exports_in(root)
    for key in {key for wanted in allowed for key in wanted.exports}:
        newest = exports.newest(*key)  # type: ignore[arg-type]
        found = 0 if newest is None else int(newest.index)
        assert found in {wanted.exports.get(key, 0) for wanted in allowed}, f"export of {key}"
    assert not exports.damaged_count, EXPORTS


def _judge_offline(world: World, root: str, seen: Picture) -> None:
    if not os.path.exists(f"{root}/IDENTITY") or not os.path.exists(f"{root}/segments"):
        return
    before = tree_of(Path(root))
    report = offline.check(world.vfs, root)
    assert report.ok, report.damages
    for _ in offline.dump(world.vfs, root):
        pass
    offline.statistics(world.vfs, root)
    assert tree_of(Path(root)) == before, "an offline tool wrote something"
    found = {(r.shard, r.replica) for r in report.replicas if r.removed}
    assert found == seen.removed, "offline: removed replicas"


def differences(seen: Picture, wanted: Picture) -> str:
    """Where two pictures differ, in one line."""
    if seen.removed != wanted.removed:
        return f"removed {sorted(seen.removed)}, expected {sorted(wanted.removed)}"
    for key in sorted(seen.replicas.keys() | wanted.replicas.keys()):
        found, other = seen.replicas.get(key), wanted.replicas.get(key)
        if found == other:
            continue
        if found is None or other is None:
            return f"replica {key} is {'missing' if found is None else 'unexpected'}"
        return (
            f"replica {key}: term {found.term}/{other.term}, vote {found.vote}/{other.vote}, first "
            f"{found.first_index}/{other.first_index}, entries {len(found.entries)}/"
            f"{len(other.entries)} (seen/expected)"
        )
    return "nothing"


def run(
    name: str,
    work: Path,
    *,
    pairs: bool = False,
    only: str | None = None,
    without: str = "",
    failures_max: int = 5,
) -> Outcome:
    """Record and judge one scenario.

    `only`: judge just the state of that name. `without`: a call of the Vfs that the store leaves
    out.
    """
    outcome = Outcome(name)
    script = script_of(name)
    trace, root = record_scenario(name, work, without)
    place = str(work / f"{name}.state")
    for state in crash_states(trace, root, outcome, pairs=pairs):
        if only is not None and state.name != only:
            continue
        outcome.states += 1
        try:
            judge(state, script, place)
        except Exception as error:
            outcome.failures.append(
                f"{state.name} after {state.what}: {type(error).__name__}: {error}\n"
                f"  replay: python -m tests.crash --replay {state.name}"
            )
            if len(outcome.failures) >= failures_max:
                break
            if only is not None:
                raise
    shutil.rmtree(place, ignore_errors=True)
    if not outcome.failures:
        shutil.rmtree(root)
        trace.unlink()
    return outcome
