"""made_document: the command line of a tool that makes a document from the code."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path


def print_or_write(about: str, path: Path, document: Callable[[], str]) -> None:
    """Print the document, or with ``--write`` write it to `path`. `about`: the tool's docstring."""
    parser = argparse.ArgumentParser(description=about.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--write", action="store_true", help=f"write {path.name}")
    if parser.parse_args().write:
        path.write_text(document(), encoding="utf-8")
    else:
        print(document(), end="")
