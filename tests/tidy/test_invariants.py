"""Every invariant is stated, listed, and found by the script that lists them."""

from __future__ import annotations

from pathlib import Path

from tools import list_invariants

SOURCE = '''"""Theory.

INV-A-1: the first holds
over two lines.

- INV-A-2: the second holds; unlike INV-A-1 it is an item.
"""


def f(x: int) -> None:
    # INV-B: a comment states this one.
    invariant(x > 0, "INV-B", x=x)
    invariant(x < 9, "INV-C", x=x)
'''


def test_the_document_lists_exactly_the_ids_of_the_code() -> None:
    in_code = set(list_invariants.collect(list_invariants.ROOT))
    document = list_invariants.DOCUMENT.read_text(encoding="utf-8")
    in_document = set(list_invariants.INVARIANT_ID.findall(document))
    assert in_code - in_document == set(), "run `make invariants`"
    assert in_document - in_code == set(), "run `make invariants`"


def test_every_invariant_says_what_holds() -> None:
    invariants = list_invariants.collect(list_invariants.ROOT)
    silent = [
        name
        for name, known in sorted(invariants.items())
        if not known.statement and not any(known.conditions)
    ]
    assert silent == []


def test_statements_checks_and_tests_are_found(tmp_path: Path) -> None:
    (tmp_path / "logservice").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "logservice" / "a.py").write_text(SOURCE)
    (tmp_path / "tests" / "test_a.py").write_text('"""Kills INV-A-2 and INV-UNKNOWN."""\n')
    found = list_invariants.collect(tmp_path)
    assert set(found) == {"INV-A-1", "INV-A-2", "INV-B", "INV-C"}
    assert found["INV-A-1"].statement == "the first holds over two lines"
    assert found["INV-A-2"].tested_in == {"tests/test_a.py"}
    assert found["INV-A-2"].checked_in == set()
    assert found["INV-B"].checked_in == {"logservice/a.py"}
    assert found["INV-B"].statement == "a comment states this one"
    document = list_invariants.render(found)
    assert "| INV-B | a comment states this one | `logservice/a.py` |  |  |" in document
    (line,) = (line for line in document.splitlines() if line.startswith("| INV-A-2 "))
    assert line.endswith(" |  | `tests/test_a.py` | `logservice/a.py` |")
    assert "| INV-C | `x < 9` |" in document
