"""sealing_keys: the ring of keys that the archive seals objects with, and a store its segments.

A ring holds keys by their ids and says which of them is active: what is new is encrypted with that
one. The others are there for what was encrypted with them, each until the last of that is gone. It
comes from a file, or from a command that prints it (so that it may lie in a vault), as TOML:
``active = "id"``, and ``[keys]`` with 32 bytes in base64 for each id.

A segment has room for a *tag* of its key's id, not for the id: the first four bytes of its SHA-256.
INV-KEYS-TAGS: no two ids of a ring have the same tag, and none has 0, which stands for "no key".

Nothing here ever says what a key is: not in an error, nor in what a ring shows of itself.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import subprocess
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from logservice_wire.errors import InvalidArgument
from logservice_wire.regular_file import read_regular

from logservice import bounds

KEY_BYTES: Final = 32
_KEY_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_TAG: Final = b"logservice key tag\0"


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys by their ids, and the one for what is new. Never shown."""

    active: str
    keys: dict[str, bytes] = field(repr=False)

    @classmethod
    def parse(cls, text: str, source: str, field: str) -> Keys:
        """From TOML. Raises InvalidArgument with that `field`, which says nothing of what was
        read.
        """
        try:
            found: dict[str, Any] = tomllib.loads(text)
            keys = {key: base64.b64decode(one, validate=True) for key, one in found["keys"].items()}
            active = found["active"]
        except (tomllib.TOMLDecodeError, KeyError, AttributeError, TypeError, binascii.Error):
            raise InvalidArgument(f"{source}: these are no keys", field=field) from None
        if (
            any(len(one) != KEY_BYTES for one in keys.values())
            or not all(_KEY_ID.fullmatch(key) for key in keys)
            or active not in keys
        ):
            raise InvalidArgument(
                f"{source}: a key has an id and {KEY_BYTES} bytes, and one of them is active",
                field=field,
            )
        if len({0, *map(key_tag, keys)}) <= len(keys):
            raise InvalidArgument(f"{source}: two ids have one tag: rename one", field=field)
        return cls(active, keys)


def key_tag(key_id: str) -> int:
    """What stands for a key's id where there is no room for it."""
    return int.from_bytes(hashlib.sha256(_TAG + key_id.encode()).digest()[:4], "little")


def keys_source(file: str, command: Sequence[str], prefix: str) -> Callable[[], Keys] | None:
    """Reads the ring from the file or by the command, whichever is named; None: neither is.

    `prefix`: of ``keys_file`` and ``keys_command``, as the errors' fields name them. Raises
    InvalidArgument when both are named; what it gives raises as `keys_of_file`, `keys_of_command`.
    """
    if file and command:
        raise InvalidArgument("keys come from a file or a command", field=f"{prefix}keys_file")
    if file:
        return lambda: keys_of_file(Path(file), f"{prefix}keys_file")
    if command:
        return lambda: keys_of_command(command, f"{prefix}keys_command")
    return None


def keys_of_file(path: Path, field: str) -> Keys:
    """Raises InvalidArgument with that `field`, also when others than the owner may read the
    file.
    """

    def check(status: os.stat_result) -> None:
        if status.st_mode & 0o077:
            raise InvalidArgument(f"{path} is not its owner's alone (mode 600)", field=field)

    try:
        data = read_regular(path, bounds.CONFIG_FILE_BYTES_MAX, check)
        return Keys.parse(data.decode("utf-8"), str(path), field)
    except OSError as error:
        raise InvalidArgument(f"{path}: {error.strerror}", field=field) from error
    except UnicodeDecodeError:
        raise InvalidArgument(f"{path}: these are no keys", field=field) from None


def keys_of_command(command: Sequence[str], field: str) -> Keys:
    """What the command prints. Raises InvalidArgument with that `field`."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=bounds.KEYS_COMMAND_S,
            check=True,
            text=True,
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{command[0]}: {type(error).__name__}", field=field) from None
    return Keys.parse(done.stdout, command[0], field)
