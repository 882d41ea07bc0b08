"""Rings of keys: read from a file or a command, or refused without a word of what was read."""

from __future__ import annotations

import base64
import itertools
import os
import sys
from pathlib import Path

import pytest
from logservice_wire.errors import InvalidArgument

from logservice import bounds
from logservice.sealing_keys import Keys, key_tag, keys_of_command, keys_of_file

TEXT = f'active = "k"\n[keys]\nk = "{base64.b64encode(b"k" * 32).decode()}"\n'


def test_keys_of_a_file_that_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(TEXT)
    path.chmod(0o640)
    with pytest.raises(InvalidArgument, match="mode 600"):
        keys_of_file(path, "keys")
    path.chmod(0o600)
    keys = keys_of_file(path, "keys")
    assert keys == Keys("k", {"k": b"k" * 32})
    assert "kkkk" not in repr(keys)
    with pytest.raises(InvalidArgument):
        keys_of_file(tmp_path / "none", "keys")


def test_keys_of_a_command() -> None:
    assert keys_of_command([sys.executable, "-c", f"print({TEXT!r})"], "keys").active == "k"
    for wrong in ([sys.executable, "-c", "raise SystemExit(1)"], ["/no/such/program"]):
        with pytest.raises(InvalidArgument):
            keys_of_command(wrong, "keys")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "active = 1",
        TEXT.replace('"k"', '"other"'),
        TEXT.replace("a2tr", "a2t", 1),
        TEXT.replace("k = ", '"k k" = '),
        'active = "k"\nkeys = 3',
        'active = "k"\n[keys]\nk = "AAAA"',
        'active = ["k"]\n[keys]\nk = 7',
        "\0",
    ],
)
def test_what_are_no_keys_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        Keys.parse(text, "here", "some.keys")
    assert "a2tr" not in str(caught.value)
    assert caught.value.metadata["field"] == "some.keys"


def test_a_command_may_take_its_time_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "KEYS_COMMAND_S", 0.2)
    with pytest.raises(InvalidArgument, match="TimeoutExpired"):
        keys_of_command([sys.executable, "-c", "import time; time.sleep(60)"], "keys")


def test_two_ids_with_one_tag_are_no_ring() -> None:
    """INV-KEYS-TAGS."""
    seen: dict[int, str] = {}
    for number in itertools.count():
        key_id = f"k{number}"
        if (other := seen.setdefault(key_tag(key_id), key_id)) != key_id:
            break
    lines = [f'"{one}" = "{base64.b64encode(os.urandom(32)).decode()}"' for one in (other, key_id)]
    text = "\n".join([f'active = "{other}"', "[keys]", *lines])
    with pytest.raises(InvalidArgument, match="two ids have one tag"):
        Keys.parse(text, "here", "keys")
    assert Keys.parse(text.replace(f'"{key_id}"', '"another"'), "here", "keys").active == other
