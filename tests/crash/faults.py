"""The nth call to the operating system fails, for every n, on the real file system.

``python -m tests.crash.faults`` repeats one scenario that does everything a store does. Each time
it runs in a new process, and the next call fails: with EIO, with ENOSPC, interrupted, or with fewer
bytes than asked for; once, or from then on. Afterwards a healthy process opens what is left.

- A call that fails stops the store with a typed error; from then on it takes nothing. (A disk that
  is full before anything was written only refuses: OutOfSpace.)
- Short reads and writes stop nothing: the store continues them.
- A write that syncs its own bytes (RWF_DSYNC) counts as two calls: it fails before its first byte,
  or with all bytes in the file and the sync missing.
- Everything that was acked is there, and all or nothing of the step under way. A replica whose
  bytes could not be *read* may be faulty instead, with the reason.

LevelDB makes its own calls, which Python does not see: `leveldb_faults` makes those fail.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click
from logservice_wire.errors import Halted, LogServiceError

from logservice.logdb.io import posix_vfs
from logservice.logdb.io.kv import KvError
from logservice.logdb.space.disk_space import OutOfSpace
from tests.crash.campaign import judge_opening, work_directory
from tests.crash.perform import Files, Performer
from tests.crash.scenarios import script_of
from tests.crash.script import Do, Script, Step
from tests.logdb.helpers import update

CALLS = (
    "open",
    "pread",
    "pwritev",
    "pwrite",
    "fdatasync",
    "posix_fallocate",
    "ftruncate",
    "fstat",
    "replace",
    "stat",
    "unlink",
    "listdir",
    "makedirs",
    "fsync",
    "statvfs",
)
"""The calls that fail. ``close`` is left out: what was written is synced before it, so its error
would mean nothing."""
METHODS = ("lock", "remove_tree")
SHORT = "short"
KINDS: dict[str, int | None] = {
    "EIO": errno.EIO,
    "ENOSPC": errno.ENOSPC,
    "EINTR": errno.EINTR,
    SHORT: None,
}
FAILURES_MAX = 20
_STOPPED, _FINISHED, _BROKEN = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Fault:
    """The fault: call number `number` (from 1) fails."""

    number: int
    kind: str
    for_good: bool

    def __str__(self) -> str:
        return f"{self.kind}:{'for-good' if self.for_good else 'once'}:{self.number}"


class FaultyOs:
    """The module `os` as `posix_vfs` sees it, with one call that fails."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.count = 0
        self.hit = ""

    def __getattr__(self, name: str) -> object:
        real = getattr(os, name)
        short = self.fault.kind == SHORT
        if name not in (("pread", "pwritev", "pwrite") if short else CALLS):
            return real
        return self.short(name, real) if short else self.failing(name, real)

    def _now(self, name: str) -> bool:
        self.count += 1
        number = self.fault.number
        now = self.count == number or (self.fault.for_good and self.count > number)
        if now and not self.hit:
            self.hit = name
        return now

    def failing(self, name: str, real: Callable[..., object]) -> Callable[..., object]:
        code = KINDS[self.fault.kind]
        assert code is not None

        def call(*arguments: object, **named: object) -> object:
            if self._now(name):
                raise OSError(code, os.strerror(code))
            if name == "pwritev" and len(arguments) == 4 and self._now(name):
                real(*arguments[:3])
                raise OSError(code, os.strerror(code))
            return real(*arguments, **named)

        return call

    def short(self, name: str, real: Callable[..., int]) -> Callable[..., object]:
        def call(handle: int, data: object, offset: int, flags: int = 0) -> object:
            if not self._now(name):
                return real(handle, data, offset, *([flags] if flags else []))
            if isinstance(data, int):
                return real(handle, max(1, data // 2), offset)
            whole = b"".join(data) if isinstance(data, list | tuple) else bytes(data)  # type: ignore[call-overload]
            return os.pwritev(handle, [whole[: max(1, len(whole) // 2)]], offset, flags)

        return call


def in_process(work: Callable[[int], int]) -> tuple[int, str]:
    """Run `work` in a child; return its result and what it wrote to the pipe.

    LevelDB's threads do not survive a fork, so no process that forks here has ever opened a
    LevelDB.
    """
    read, write = os.pipe()
    child = os.fork()
    if not child:
        code = _BROKEN
        try:
            os.close(read)
            code = work(write)
        except BaseException:  # noqa: BLE001 - whatever it is, the parent says it
            os.write(write, b"\n" + traceback.format_exc().encode()[-3000:])
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), said


def perform(root: str, script: Script, fault: Fault) -> Callable[[int], int]:
    """The work of the process whose call fails.

    It writes each step that it began and acked, and at last ``=count hit``.
    """

    def work(pipe: int) -> int:
        faulty = FaultyOs(fault)
        posix_vfs.os = faulty  # type: ignore[assignment]
        for name in METHODS if fault.kind != SHORT else ():
            setattr(Files, name, _method(faulty, name))
        performer: Performer | None = None
        failing: Step | None = None
        code = _FINISHED
        try:
            performer = Performer(root, script)
            for number, step in enumerate(script.steps):
                os.write(pipe, b"b%d " % number)
                failing = step
                performer.perform(step)
                failing = None
                os.write(pipe, b"e%d " % number)
                performer.judge(number + 1)
        except (OSError, KvError, LogServiceError) as error:
            code = _STOPPED
            if (
                failing is not None
                and failing.do is Do.COMMIT
                and not isinstance(error, OutOfSpace)
            ):
                assert performer is not None
                _takes_nothing_more(performer)
        except AssertionError:
            # A replica whose bytes could not be read is faulty, and the judge reports it.
            if faulty.hit != "pread":
                raise
            code = _STOPPED
        os.write(pipe, f"={faulty.count} {faulty.hit}".encode())
        return code

    return work


def _method(faulty: FaultyOs, name: str) -> Callable[..., object]:
    real = getattr(posix_vfs.PosixVfs, name)
    return faulty.failing(name, real)


def _takes_nothing_more(performer: Performer) -> None:
    try:
        performer.commit(update(5, 5, hard=(1, 1, 0)))
    except Halted:
        return
    raise AssertionError("a store went on after a failed write")


def attempt(work: Path, script: Script, fault: Fault) -> tuple[bool, str]:
    """Whether the fault was reached, and what is wrong, if anything."""
    root = str(work / "data")
    shutil.rmtree(root, ignore_errors=True)
    code, said = in_process(perform(root, script, fault))
    if code == _BROKEN:
        return True, said
    steps, _, rest = said.partition("=")
    if not rest.split()[1:]:
        return False, "" if code == _FINISHED else f"stopped without a fault: {said}"
    if fault.kind == SHORT and code != _FINISHED:
        return True, f"a short {rest} stopped the store"
    begun = [int(word[1:]) for word in steps.split() if word[0] == "b"]
    ended = [int(word[1:]) for word in steps.split() if word[0] == "e"]
    first = ended[-1] + 1 if ended else 0
    last = first + (len(begun) > len(ended))
    hit = rest.split()[1]
    may_be_faulty = hit == "pread"
    # An export that cannot be read is passed over, also by the step that should remove it. It is
    # older than the installed snapshot then, and does no harm.
    exports_from = 1 if hit in ("open", "fstat", "pread") else None

    def opens(pipe: int) -> int:
        judge_opening(
            root, script, first, last, may_be_faulty=may_be_faulty, exports_from=exports_from
        )
        return _FINISHED

    code, said = in_process(opens)
    return True, "" if code == _FINISHED else said


def campaign(work: Path, stride: int, first: int = 1) -> Iterator[tuple[Fault, str]]:
    """Try every stride-th fault; yield it with what is wrong."""
    script = script_of("everything")
    for kind in KINDS:
        for for_good in (False, True):
            number = first
            while True:
                fault = Fault(number, kind, for_good)
                came, wrong = attempt(work, script, fault)
                yield fault, wrong
                if not came:
                    break
                number += stride


@click.command()
@click.option("--stride", default=1, show_default=True, help="Every how manieth call fails.")
@click.option("--replay", help="KIND:once|for-good:NUMBER, as a failure prints it.")
def main(stride: int, replay: str | None) -> None:
    """Make every call to the operating system fail, one after the other."""
    work = work_directory()
    if replay is not None:
        kind, how, number = replay.split(":")
        print(attempt(work, script_of("everything"), Fault(int(number), kind, how == "for-good")))
        return
    failed = tried = 0
    for fault, wrong in campaign(work, stride):
        tried += 1
        if failed > FAILURES_MAX:
            break
        if wrong:
            failed += 1
            print(f"{wrong}\n  replay: python -m tests.crash.faults --replay {fault}", flush=True)
    print(f"faults: {tried - failed} passed, {failed} failed")
    shutil.rmtree(work)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
