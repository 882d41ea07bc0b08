"""TOML text of a configuration: the inverse of what `logservice.config` reads."""

from __future__ import annotations

import json
from collections.abc import Mapping


def toml_text(sections: Mapping[str, Mapping[str, object]]) -> str:
    """One table per section. A value is a str, bool, int or float, or a list or inline table of
    those.
    """
    lines: list[str] = []
    for name, section in sections.items():
        lines.append(f"[{name}]")
        lines += [f"{key} = {_value(value)}" for key, value in section.items()]
        lines.append("")
    return "\n".join(lines)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        # A JSON string is a TOML basic string, except that TOML wants DEL escaped as well.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_value(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    raise TypeError(f"no TOML form for {type(value).__name__}")
