"""The ring of a store follows its file, and a ring that would lose something is an alarm."""

from __future__ import annotations

import base64
import logging
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from logservice_wire.errors import InvalidArgument

from logservice.logdb.io.segment_keys import KeysMissing
from logservice.sealing_keys import Keys, keys_source
from logservice.server.storage_keys import StorageKeys

KEYS = {"a": b"a" * 32, "b": b"b" * 32}


@dataclass
class Users:
    """The data directories of a store."""

    encrypts: bool = True
    needed: set[str] = field(default_factory=lambda: {"a"})
    told: list[Keys] = field(default_factory=list)

    def use_keys(self, keys: Keys) -> None:
        if self.needed - set(keys.keys):
            raise KeysMissing("segments need another one")
        self.told.append(keys)


def write(path: Path, active: str, *names: str) -> None:
    lines = [f'{name} = "{base64.b64encode(KEYS[name]).decode()}"' for name in names]
    path.write_text("\n".join([f'active = "{active}"', "[keys]", *lines]))
    path.chmod(0o600)


async def test_the_ring_is_followed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    path, users = tmp_path / "keys", Users()
    write(path, "a", "a")
    read = keys_source(str(path), [], "storage.")
    assert read is not None
    keys = StorageKeys(read, 1.0)
    assert (await keys.first()).active == "a"
    keys.attach(users)
    assert not await keys.poll()
    assert users.told == []
    write(path, "b", "a", "b")
    assert await keys.poll()
    assert users.told == [Keys("b", KEYS)]
    assert "the key b from now on" in caplog.text
    assert keys.alarms() == []


async def test_a_ring_that_cannot_be_used_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, users = tmp_path / "keys", Users()
    write(path, "a", "a")
    read = keys_source(str(path), [], "storage.")
    assert read is not None
    keys = StorageKeys(read, 1.0)
    await keys.first()
    keys.attach(users)
    for spoil, said in (
        (lambda: path.write_text("nonsense"), "these are no keys"),
        (lambda: write(path, "b", "b"), "segments need another one"),
        (lambda: path.chmod(0o644), "mode 600"),
        (path.unlink, "No such file"),
    ):
        spoil()
        for _ in range(2):
            assert not await keys.poll()
        (alarm,) = keys.alarms()
        assert said in alarm
        assert caplog.text.count(said) == 1, "it is said once"
    assert users.told == []
    write(path, "a", "a")
    assert not await keys.poll()
    assert keys.alarms() == []


async def test_a_store_that_does_not_encrypt_yet_says_so() -> None:
    users = Users(encrypts=False)
    keys = StorageKeys(lambda: Keys("a", KEYS), 1.0)
    await keys.first()
    assert keys.alarms() == []
    keys.attach(users)
    assert "written plain until the cluster version is raised" in keys.alarms()[0]
    users.encrypts = True
    assert keys.alarms() == []


async def test_keys_of_a_command_or_none_at_all() -> None:
    assert keys_source("", [], "storage.") is None
    read = keys_source("", [sys.executable, "-c", "print('nothing')"], "storage.")
    assert read is not None
    with pytest.raises(InvalidArgument) as caught:
        await StorageKeys(read, 1.0).first()
    assert caught.value.metadata["field"] == "storage.keys_command"
