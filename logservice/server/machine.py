"""machine: what there is to know of the machine and of a file system without measuring anything.

Theory of operation. Linux says it in /proc and /sys. What is not there, or is not understood, is
left out: nothing depends on it, and a container may hide any of it. Judged is what is known to cost
acknowledged records or to slow a store down: a file system that forgets with the power, options
that let it, swap, a limit of memory or of open files that is low.

A device with a write-back cache is no finding by itself: an honest one empties it at each
fdatasync. It is shown, because a dishonest one is known by nothing else than by being too fast
(`nodehost.measuring.disk`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from logservice_wire.value import value

from logservice import bounds
from logservice.nodehost.measuring.figure import Figure, Verdict, at_least, at_most, fact
from logservice.server import descriptors

_MIB: Final = 1 << 20

_FORGETFUL: Final = frozenset({"tmpfs", "ramfs"})
"""File systems that have nothing left when the power is back."""

_REMOTE: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "fuse", "fuseblk", "ceph"})
"""File systems whose fdatasync means what somebody else makes of it."""

_LAYERED: Final = frozenset({"overlay", "aufs"})

_DANGEROUS: Final = {
    "ro": "nothing can be written",
    "nobarrier": "the device's cache is not emptied at an fdatasync",
    "barrier=0": "the device's cache is not emptied at an fdatasync",
    "data=writeback": "after a crash files may have the content of others",
    "nolog": "after a crash the file system may not be whole",
}


@value
class Mount:
    """Where a path is. `device`: major:minor."""

    device: str
    point: str
    kind: str
    options: tuple[str, ...]


def parse_mounts(text: str) -> list[Mount]:
    """The lines of /proc/self/mountinfo that are understood."""
    found = []
    for line in text.splitlines():
        left, separator, right = line.partition(" - ")
        before, after = left.split(), right.split()
        if separator and len(before) >= 6 and len(after) >= 3:
            options = {*before[5].split(","), *after[2].split(",")}
            point = before[4].encode().decode("unicode_escape", "replace")
            found.append(Mount(before[2], point, after[0], tuple(sorted(options))))
    return found


def mount_of(path: str, mounts: list[Mount]) -> Mount | None:
    """The mount that a path is in: the one with the longest mount point, the newest of several."""
    real = os.path.realpath(path)
    holding = [one for one in mounts if one.point == "/" or f"{real}/".startswith(f"{one.point}/")]
    longest = max((len(one.point) for one in holding), default=0)
    return next((one for one in reversed(holding) if len(one.point) == longest), None)


def about_disk(path: str) -> list[Figure]:
    """What is known of the file system that a data directory is in."""
    mount = mount_of(path, parse_mounts(_read(Path("/proc/self/mountinfo"))))
    if mount is None:
        return []
    return [*_about_mount(mount), *_about_device(Path("/sys/dev/block") / mount.device)]


def _about_mount(mount: Mount) -> Iterator[Figure]:
    kind = mount.kind
    if kind in _FORGETFUL:
        yield fact("file system", f"{kind}: it is gone with the power", Verdict.BAD)
    elif kind.partition(".")[0] in _REMOTE:
        text = f"{kind}: what is durable there, another machine decides"
        yield fact("file system", text, Verdict.SLOW)
    elif kind in _LAYERED:
        yield fact("file system", f"{kind}: a container's layer, gone with it", Verdict.BAD)
    else:
        yield fact("file system", kind, Verdict.OK)
    found = [f"{name}: {why}" for name, why in _DANGEROUS.items() if name in mount.options]
    verdict = Verdict.BAD if found else Verdict.OK
    yield fact("mount options", "; ".join(found) or ",".join(mount.options), verdict)


def _about_device(device: Path) -> Iterator[Figure]:
    for queue in (device / "queue", device / ".." / "queue"):
        cache = _read(queue / "write_cache").strip()
        if cache:
            rotates = _read(queue / "rotational").strip() == "1"
            yield fact("write cache", f"{cache}{', it rotates' if rotates else ''}")
            return


def about_machine() -> list[Figure]:
    """What is known of the machine and of this process."""
    return [*_descriptors(), *_memory(), *_load()]


def _descriptors() -> Iterator[Figure]:
    wanted, least = float(bounds.DESCRIPTORS_WANTED), float(bounds.DESCRIPTORS_MIN)
    limit = descriptors.limit()
    yield at_least("open files, limit", limit, "files", wanted, least)
    with contextlib.suppress(OSError):
        used = len(os.listdir("/proc/self/fd"))
        yield at_most("open files", used, "files", 0.7 * limit, 0.9 * limit)


def _memory() -> Iterator[Figure]:
    known = dict(_numbers(_read(Path("/proc/meminfo"))))
    total, free = known.get("MemTotal", 0) / 1024, known.get("MemAvailable", 0) / 1024
    if total:
        yield at_least("memory available", free, "MiB", total / 10, total / 50, f"of {total:.0f}")
    limit = _read(Path("/sys/fs/cgroup/memory.max")).strip()
    if limit.isdecimal():
        yield Figure("memory limit", int(limit) / _MIB, "MiB", text="of the control group")
    own = dict(_numbers(_read(Path("/proc/self/status"))))
    if "VmRSS" in own:
        yield Figure("memory used", own["VmRSS"] / 1024, "MiB", text="by the store")
    if "VmSwap" in own:
        text = "a store that is swapped out stalls"
        yield at_most("memory swapped", own["VmSwap"] / 1024, "MiB", 0.0, 64.0, text)


def _load() -> Iterator[Figure]:
    with contextlib.suppress(OSError):
        cores = os.cpu_count() or 1
        load = os.getloadavg()[0]
        yield at_most("load", load, "", 1.5 * cores, 4.0 * cores, f"{load:.1f} on {cores} cores")


def _numbers(text: str) -> Iterator[tuple[str, int]]:
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        number = rest.split()
        if number and number[0].isdecimal():
            yield name, int(number[0])


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def forget_pages(handle: int) -> None:
    """Ask the system to drop what it holds of a file in memory."""
    with contextlib.suppress(OSError):
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
