"""tomllib reads back the values that `toml_text` wrote."""

from __future__ import annotations

import tomllib

import pytest

from logservice.cli.processes.toml_text import toml_text


def test_round_trip() -> None:
    sections: dict[str, dict[str, object]] = {
        "store": {"store_id": 'q"\\ \x7f\n\t é 𝄞', "flag": True, "off": False},
        "numbers": {"int": -3, "float": 0.25, "large": 10**15, "round": 10.0},
        "bootstrap": {"members": [{"store_id": "a", "peer": "h:1"}, {"store_id": "b", "peer": ""}]},
        "empty": {},
    }
    assert tomllib.loads(toml_text(sections)) == sections


def test_what_has_no_form() -> None:
    with pytest.raises(TypeError, match="NoneType"):
        toml_text({"a": {"b": None}})
