"""TOML text of a configuration: the inverse of what `logservice.config` reads."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping


def toml_text(sections: Mapping[str, Mapping[str, object]]) -> str:
    """One table per section. A value is a str, bool, int or float, or a list or inline table of
    those.
    """
    lines: list[str] = []
    for name, section in sections.items():
        lines.append(f"[{name}]")
        lines += assignments(section)
        lines.append("")
    return "\n".join(lines)


def assignments(keys: Mapping[str, object]) -> list[str]:
    """The lines of one table, values as in `toml_text`."""
    return [f"{toml_key(key)} = {_value(value)}" for key, value in keys.items()]


def toml_key(key: str) -> str:
    """A key as it stands in the file: bare where that is allowed."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _value(key)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        # A JSON string is a TOML basic string, except that TOML wants DEL escaped as well.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping) and not value:
        return "{}"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(assignments(value)) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    raise TypeError(f"no TOML form for {type(value).__name__}")
