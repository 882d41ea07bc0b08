"""WriteRing: a durable write that a thread with other duties may wait for, by io_uring.

Theory of operation. Nobody can call a write back that hangs on a disk, so a thread with other
duties never makes one; it gives it to another thread. Between threads of Python that costs two
hand-overs and a fight for the interpreter lock, which is more than a fast disk's write. Linux can
do the hand-over itself: the write is put into a ring, a thread of the *kernel* makes it, and the
caller waits for its end for as long as it has patience. It is the call that `PosixVfs` makes
anyway, one write with RWF_DSYNC, in the same code of the kernel (`generic_write_sync`), and its
result is the same number. On a disk that took 1 us a write by a ring took 7 us and one by a thread
13 to 44 us.

A ring has one write at a time, whose bytes are copied into memory of the ring first: the kernel may
read them for as long as the write is under way, whatever becomes of the caller's objects.

- INV-RING-1: one thread at a time uses a ring. Whoever gets `False` from `write` has it until
  `finish` has returned, on whatever thread.
- INV-RING-2: memory that a write under way is read from stays what it is. A ring whose write did
  not end is not used again and not unmapped.
- INV-RING-3: a result is taken once, and it is that of the write that was begun last.

Why no barriers are needed, which Python does not have: the kernel reads the submission queue inside
the system call that submits, on the same thread. A completion is read after a system call that
returned because it had been written.

The layout is that of `linux/io_uring.h`. Needed are a single mapping of both queues (Linux 5.4),
IORING_OP_WRITE (5.6) and a wait with a time-out (IORING_FEAT_EXT_ARG, 5.11). Filters of system
calls, as containers have them, often refuse io_uring; then there are no rings.

Source: Axboe, "Efficient IO with io_uring" (2019); man pages io_uring_setup(2), io_uring_enter(2).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import struct
import sys
import time
from collections.abc import Sequence
from typing import Final

from logservice import bounds
from logservice.invariants import invariant

_SETUP: Final = 425
_ENTER: Final = 426
"""Numbers of the system calls, the same on all architectures since Linux 5.1."""

_GETEVENTS: Final = 1
_EXT_ARG: Final = 8
_FEATURES: Final = 1 << 0 | 1 << 8
"""One mapping for both queues; a wait with a time-out."""

_SUBMISSIONS_OFFSET: Final = 0x10000000
_OP_WRITE: Final = 23
_DSYNC: int = getattr(os, "RWF_DSYNC", 0)

_PARAMS = struct.Struct("=30I")
_SUBMISSION = struct.Struct("=BBHiQQIIQQQQ")
_COMPLETION = struct.Struct("=QiI")
_TIME = struct.Struct("=qq")
_WAIT_ARGUMENT = struct.Struct("=QIIQ")
_UINT = 0xFFFFFFFF

_UNDER_WAY: Final[set[WriteRing]] = set()
"""Rings with a write: they stay in memory even when everybody else forgets them (INV-RING-2)."""


class WriteRing:
    """See the module's text."""

    def __init__(self) -> None:
        """Raises OSError where the kernel, or a filter in front of it, has no such ring."""
        if not (sys.platform == "linux" and _DSYNC):
            raise OSError(errno.ENOSYS, "no io_uring on this system")
        self._system_call = ctypes.CDLL(None, use_errno=True).syscall
        self._system_call.argtypes = (ctypes.c_long,) * 7
        self._system_call.restype = ctypes.c_long
        parameters = ctypes.create_string_buffer(_PARAMS.size)
        self._descriptor = self._call(_SETUP, 1, ctypes.addressof(parameters), 0, 0, 0, 0)
        try:
            self._map(_PARAMS.unpack(parameters.raw))
        except BaseException:
            os.close(self._descriptor)
            raise
        self._memory = mmap.mmap(-1, bounds.WRITE_RING_BYTES)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._time = ctypes.create_string_buffer(_TIME.size)
        wait = _WAIT_ARGUMENT.pack(0, 0, 0, ctypes.addressof(self._time))
        self._wait_argument = ctypes.create_string_buffer(wait, len(wait))
        self._begun = 0
        self._wanted = 0
        self.under_way = False
        """A write was begun whose result was not taken."""

    def _map(self, parameters: tuple[int, ...]) -> None:
        submissions, completions, features = parameters[0], parameters[1], parameters[5]
        if features & _FEATURES != _FEATURES:
            raise OSError(errno.ENOSYS, "this kernel's io_uring is too old")
        to_submit, completed = parameters[10:20], parameters[20:30]
        size = max(to_submit[6] + 4 * submissions, completed[5] + _COMPLETION.size * completions)
        self._queues = mmap.mmap(self._descriptor, size)
        self._submissions = mmap.mmap(
            self._descriptor, submissions * _SUBMISSION.size, offset=_SUBMISSIONS_OFFSET
        )
        self._words = memoryview(self._queues).cast("I")
        self._to_submit_head, self._to_submit_tail = to_submit[0] // 4, to_submit[1] // 4
        self._submission_mask = submissions - 1
        for slot in range(submissions):
            self._words[to_submit[6] // 4 + slot] = slot
        self._completed_head, self._completed_tail = completed[0] // 4, completed[1] // 4
        self._completion_mask = completions - 1
        self._completions_at = completed[5]

    def write(
        self,
        handle: int,
        buffers: Sequence[bytes | memoryview],
        offset: int,
        patience_s: float,
    ) -> bool:
        """Write and sync all buffers, at most WRITE_RING_BYTES; whether it ended in time.

        It returns after about `patience_s` at the latest. With True `result` says how it ended;
        with False it is under way, and `finish` waits for it. Raises OSError when the kernel did
        not take the write: then nothing was begun.
        """
        invariant(not self.under_way, "INV-RING-1")
        data = b"".join(buffers)
        self._wanted = len(data)
        self._memory[: len(data)] = data
        self._begun = (self._begun + 1) & _UINT
        tail = self._words[self._to_submit_tail]
        _SUBMISSION.pack_into(
            self._submissions,
            (tail & self._submission_mask) * _SUBMISSION.size,
            *(_OP_WRITE, 0, 0, handle, offset, self._address, len(data), _DSYNC, self._begun),
            *(0, 0, 0),
        )
        self._words[self._to_submit_tail] = (tail + 1) & _UINT
        deadline_s = time.monotonic() + patience_s
        try:
            self._enter(1, patience_s)
        except OSError:
            if self._words[self._to_submit_head] == tail:
                self._words[self._to_submit_tail] = tail
                raise
        self.under_way = True
        _UNDER_WAY.add(self)
        while not self._ended():
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                return False
            with contextlib.suppress(TimeoutError, InterruptedError):
                self._enter(0, left_s)
        return True

    def finish(self) -> None:
        """Wait for the write that is under way, for as long as it takes."""
        while not self._ended():
            with contextlib.suppress(TimeoutError, InterruptedError):
                self._enter(0, bounds.WRITE_RING_LOOK_S)

    def result(self) -> bool:
        """How the write ended: whether all of it is durable; False if only a part was written.

        Raises OSError with what the write said. Only once `write` said True or `finish` returned.
        """
        invariant(self.under_way and self._ended(), "INV-RING-3")
        head = self._words[self._completed_head]
        at = self._completions_at + (head & self._completion_mask) * _COMPLETION.size
        number, result, _ = _COMPLETION.unpack_from(self._queues, at)
        self._words[self._completed_head] = (head + 1) & _UINT
        invariant(number == self._begun, "INV-RING-3", number=number, begun=self._begun)
        self.under_way = False
        _UNDER_WAY.discard(self)
        if result < 0:
            raise OSError(-result, os.strerror(-result))
        return bool(result == self._wanted)

    def close(self) -> None:
        """Give everything back; not while a write is under way (INV-RING-2)."""
        invariant(not self.under_way, "INV-RING-2")
        self._words.release()
        self._queues.close()
        self._submissions.close()
        os.close(self._descriptor)

    def _ended(self) -> bool:
        return bool(self._words[self._completed_head] != self._words[self._completed_tail])

    def _enter(self, submissions: int, patience_s: float) -> None:
        """Submit so many, and wait for an end. A wait that ended early after a submission is no
        error: the kernel then says how many it took.
        """
        seconds = int(patience_s)
        _TIME.pack_into(self._time, 0, seconds, int((patience_s - seconds) * 1e9))
        self._call(
            *(_ENTER, self._descriptor, submissions, 1, _GETEVENTS | _EXT_ARG),
            *(ctypes.addressof(self._wait_argument), _WAIT_ARGUMENT.size),
        )

    def _call(self, *arguments: int) -> int:
        result = int(self._system_call(*arguments))
        if result < 0:
            number = ctypes.get_errno()
            if number == errno.ETIME:
                raise TimeoutError(number, os.strerror(number))
            raise OSError(number, os.strerror(number))
        return result
