"""What `make life` and `make recovery` share, which play with real processes: speaking and ending.

A story says each thing with the time since it began. Its last line is ``NAME: all checks hold``
(exit code 0), or ``NAME failed:`` with the reason (exit code 1). After a failure the files of the
run, with every store's log, are kept.
"""

from __future__ import annotations

import shutil
import time
import traceback
from collections.abc import Callable
from pathlib import Path


class Teller:
    """Says what happens, and when."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """`say` prints a line."""
        self._say = say
        self.began_s = time.monotonic()

    def tell(self, text: str) -> None:
        """Say it with the time since the beginning."""
        self._say(f"{time.monotonic() - self.began_s:5.0f} s  {text}")


def played(
    name: str,
    directory: Path,
    run: Callable[[], None],
    end: Callable[[], None],
    *,
    keep: bool,
) -> int:
    """Run a story, and `end` it whatever happens; the exit code. `keep`: its files, always."""
    try:
        run()
    except BaseException as error:  # noqa: BLE001 - whatever it was, the story failed
        traceback.print_exc()
        print(f"files of this run: {directory}")
        print(f"{name} failed: {error}")
        return 1
    finally:
        end()
    if not keep:
        shutil.rmtree(directory)
    print(f"{name}: all checks hold")
    return 0
