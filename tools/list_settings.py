"""Lists every setting of a store: its default, and what a reload of the configuration does to it.

The tables of docs/operations/configuration.md are made from the code (`logservice.config`,
`server.reload.effects`), so that the two cannot disagree. What a setting means stands in
deploy/store.example.toml.

    python -m tools.list_settings            prints the document
    python -m tools.list_settings --write    writes docs/operations/configuration.md
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import NODEFAULT, UNSET

from logservice.config import StoreConfig
from logservice.server.reload.effects import EFFECTS, Effect
from tools.made_document import print_or_write

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "operations" / "configuration.md"

WORDS = {
    Effect.RELOAD: "**taken up**",
    Effect.RESTART: "needs a restart",
    Effect.FIRST_START: "first start only",
}

MARK = "## The settings\n"
"""Above it the document is written by hand."""


def defaults(section: type[Any]) -> Iterator[tuple[str, str]]:
    """Each key of a section and its default, as TOML says it."""
    for field in msgspec.structs.fields(section):
        value = field.default
        if value is NODEFAULT and field.default_factory is not NODEFAULT:
            value = field.default_factory()
        if value is NODEFAULT or value is UNSET:
            yield field.name, "required"
        elif value is None:
            yield field.name, ""
        else:
            yield field.name, f"`{json.dumps(value)}`"


def document() -> str:
    """What docs/operations/configuration.md has to say: its own prose, and the tables."""
    prose, mark, _ = DOCUMENT.read_text(encoding="utf-8").partition(MARK)
    assert mark, f"{DOCUMENT.name} has no heading {MARK!r}"
    lines = [f"{prose}{mark}"]
    for section in msgspec.structs.fields(StoreConfig):
        lines += [f"### [{section.name}]", "", "| key | default | at a reload |", "|---|---|---|"]
        for key, default in defaults(section.type):
            effect = WORDS[EFFECTS[f"{section.name}.{key}"]]
            lines.append(f"| `{key}` | {default} | {effect} |")
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"


def main() -> None:
    """Print or write the document."""
    print_or_write(__doc__, DOCUMENT, document)


if __name__ == "__main__":
    main()
