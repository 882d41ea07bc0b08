"""settings: the configuration of an archive: which logs, from which cluster, to where.

TOML; unknown keys are refused. `deploy/archive.example.toml` shows every key.
"""

from __future__ import annotations

import fnmatch
import tomllib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from logservice_wire.errors import InvalidArgument
from logservice_wire.regular_file import read_regular
from msgspec import Meta

from logservice import bounds
from logservice.archive.bucket import Bucket, Credentials, Place
from logservice.archive.cluster_section import ClusterSection
from logservice.archive.folder import Files, Folder
from logservice.sealing_keys import Keys, keys_source


class LogsSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which logs: those whose name fits one of `names` (with ``*`` and ``?``), and those that have
    all of `labels` (an empty value stands for any).
    """

    names: list[str] = []
    labels: dict[str, str] = {}

    def choose(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether the log is archived."""
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in self.names):
            return True
        return bool(self.labels) and all(
            key in labels and value in ("", labels[key]) for key, value in self.labels.items()
        )

    def unmatched(self, names: Collection[str]) -> list[str]:
        """The whole names that none of these logs has. A pattern may fit none."""
        return [one for one in self.names if not set(one) & set("*?[") and one not in names]


class ArchiveSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the archive is, and how large its objects become."""

    folder: str = ""
    """A folder of this machine that exists; or there is a section `bucket`."""
    hold: Annotated[str, Meta(min_length=1, max_length=bounds.NAME_BYTES_MAX)] = "archive"
    """The name of the hold in each log; two archives of one cluster have two names."""
    object_bytes: Annotated[int, Meta(ge=1, le=bounds.ARCHIVE_OBJECT_BYTES_MAX)] = (
        bounds.ARCHIVE_OBJECT_BYTES
    )
    """An object is closed when the blocks of its records have so many bytes,"""
    object_age_s: Annotated[float, Meta(gt=0, le=86_400.0)] = bounds.ARCHIVE_OBJECT_AGE_S
    """or when its first record has waited so long."""
    keys_file: str = ""
    """Keys that objects are sealed with; see `sealing_keys`. It is read again for each object."""
    keys_command: list[str] = []
    """A command that prints them."""
    metrics_port: Annotated[int, Meta(ge=0, le=65_535)] = 0
    """On the loopback address; 0: none."""


class BucketSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A bucket of S3, or of a server that speaks its protocol and keeps conditional writes. Who
    asks is said by AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN of the
    environment.
    """

    name: Annotated[str, Meta(min_length=3, max_length=63, pattern=r"^[a-z0-9][a-z0-9.-]*$")]
    prefix: Annotated[str, Meta(pattern=r"^([A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*)?$")] = ""
    region: str = "us-east-1"
    endpoint: str = ""
    """host:port of a server that is not Amazon's."""
    plaintext: bool = False
    """Without TLS."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    archive: ArchiveSection
    cluster: ClusterSection
    logs: LogsSection = LogsSection()
    bucket: BucketSection | None = None


def load(path: Path) -> Settings:
    """Read the file. Raises InvalidArgument, naming the key."""
    try:
        text = read_regular(path, bounds.CONFIG_FILE_BYTES_MAX).decode("utf-8")
        found: Any = tomllib.loads(text)
        settings = msgspec.convert(found, Settings)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.DecodeError) as error:
        raise InvalidArgument(f"{path}: {error}", field="config") from error
    if not settings.logs.names and not settings.logs.labels:
        raise InvalidArgument(f"{path}: logs.names and logs.labels choose no log", field="logs")
    if bool(settings.archive.folder) == (settings.bucket is not None):
        raise InvalidArgument(
            f"{path}: an archive is in archive.folder or in a bucket", field="archive.folder"
        )
    return settings


def keys_of(settings: Settings) -> Callable[[], Keys] | None:
    """Reads the keys; None: objects are not sealed. Raises InvalidArgument."""
    given = settings.archive
    return keys_source(given.keys_file, given.keys_command, "archive.")


def files_of(settings: Settings) -> Files:
    """Where the archive is. Raises InvalidArgument: a folder has to exist, because one that is made
    by itself might be the mount point of a disk that is not there.
    """
    given = settings.bucket
    if given is not None:
        place = Place(given.name, given.prefix, given.region, given.endpoint, given.plaintext)
        return Bucket(place, Credentials.of_environment())
    folder = Path(settings.archive.folder)
    if not folder.is_dir():
        raise InvalidArgument(f"there is no folder {folder}", field="archive.folder")
    return Folder(folder)
