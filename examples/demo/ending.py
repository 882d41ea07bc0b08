"""How a demo ends: with words that say whether its checks hold."""

from __future__ import annotations

import shutil
import traceback
from collections.abc import Callable
from pathlib import Path

from examples.demo.screen import Screen


def played(
    name: str,
    directory: Path,
    screen: Screen,
    run: Callable[[], str],
    close: Callable[[], None],
    *,
    keep: bool,
) -> int:
    """Run a story, and `close` it whatever happens; the exit code. `run` answers with what the last
    line says behind the name. `keep`: its files, always; after a failure they are kept and named.
    """
    try:
        more = run()
    except BaseException as error:  # noqa: BLE001 - whatever it was, the demo failed
        traceback.print_exc()
        screen.summary()
        print(f"files of this run: {directory}")
        print(f"{name} failed: {error}")
        return 1
    finally:
        close()
    screen.summary()
    if not keep:
        shutil.rmtree(directory, ignore_errors=True)
    print(f"{name}{more}: all checks hold")
    return 0
