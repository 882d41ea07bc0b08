"""kept_bytecode: the processes of a story or a bench keep what Python compiles.

An installed program is compiled once, by its installer. A tree is compiled at each start of each
process where the environment forbids to keep the result (PYTHONDONTWRITEBYTECODE): half of what a
store's imports take then.
"""

from __future__ import annotations

import os
from pathlib import Path


def keep_bytecode(directory: Path) -> None:
    """Let the processes that this one starts from now on keep it, in `directory`."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(directory / "bytecode")
