"""Changes of a table for tests, and what the table is behind each transaction: kept by hand."""

from __future__ import annotations

import random

from examples.postgres_changes.change import Change, Entry, Mark, key_of

Row = dict[str, str | None]
Table = dict[str, Row]


def generated(seed: int, count: int) -> tuple[list[Entry], list[Table]]:
    """Changes with their marks, and behind each mark what the table ``public.t`` is then."""
    chance = random.Random(seed)
    table: Table = {}
    found: list[Entry] = []
    states: list[Table] = []
    columns = ["id", "a", 'odd "name"']
    commit = seq = 0

    def put(op: str, key: str = "", row: Row | None = None, name: str = "t") -> None:
        nonlocal seq
        place = ("public", name) if op != "B" else ("", "")
        found.append(Change(op, commit, seq, *place, key or None, row))
        seq += 1

    for number in range(count):
        commit += 10
        if number == count // 2:
            columns.append("late")
        for _ in range(chance.randint(1, 8)):
            one = str(chance.randint(1, 12))
            key = key_of([one])
            values = {name: chance.choice([None, "", "x", "ü'\n", one]) for name in columns}
            row: Row = {**values, "id": one}
            kind = chance.random()
            if kind < 0.02 or not found:
                put("B")
                table.clear()
            elif kind < 0.05:
                put("T")
                table.clear()
            elif kind < 0.15:
                put("I", key, row, "another")
            elif kind < 0.35 and key in table:
                put("D", key)
                del table[key]
            elif key in table:
                if chance.random() < 0.4:
                    del row["a"]
                put("U", key, row)
                table[key] = {**table[key], **row}
            else:
                put(chance.choice(["I", "R"]), key, row)
                table[key] = row
        found.append(Mark(commit, commit + 5, seq, 7, 0))
        seq = 0
        states.append({key: dict(row) for key, row in table.items()})
    return found, states


def filled(table: Table, columns: list[str]) -> Table:
    return {key: {name: row.get(name) for name in columns} for key, row in table.items()}
