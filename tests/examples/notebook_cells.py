"""notebook_cells: runs the code cells of a notebook in plain Python, one after the other.

What a cell shows is what it prints and then, as in a notebook, the value of a last expression.

    python -m tests.examples.notebook_cells FILE            # the outputs, as JSON
    python -m tests.examples.notebook_cells FILE --write    # into the notebook
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def shown(cell: dict[str, Any]) -> str:
    """The output that stands in the notebook."""
    return "".join("".join(output["text"]) for output in cell["outputs"])


def run(cell: dict[str, Any], names: dict[str, Any]) -> str:
    """Run a cell; returns its output."""
    module = ast.parse("".join(cell["source"]))
    value = module.body.pop() if module.body and isinstance(module.body[-1], ast.Expr) else None
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(module, "cell", "exec"), names)
        if isinstance(value, ast.Expr):
            result = eval(compile(ast.Expression(value.value), "cell", "eval"), names)
            if result is not None:
                print(repr(result))
    return said.getvalue()


def main(path: Path, *, write: bool) -> None:
    notebook = json.loads(path.read_text())
    names: dict[str, Any] = {"__name__": "__main__"}
    outputs = [run(cell, names) for cell in code_cells(notebook)]
    if not write:
        print(json.dumps(outputs))
        return
    for cell, text in zip(code_cells(notebook), outputs, strict=True):
        lines = text.splitlines(keepends=True)
        cell["outputs"] = (
            [{"name": "stdout", "output_type": "stream", "text": lines}] if text else []
        )
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), write="--write" in sys.argv[2:])
