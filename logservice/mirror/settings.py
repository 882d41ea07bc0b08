"""settings: the configuration of a mirror: two clusters, and which logs go from one to the other.

TOML; unknown keys are refused. `deploy/mirror.example.toml` shows every key.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from logservice_wire.errors import InvalidArgument
from logservice_wire.regular_file import read_regular
from msgspec import Meta

from logservice import bounds
from logservice.archive.cluster_section import ClusterSection

_Name = Annotated[str, Meta(max_length=bounds.NAME_BYTES_MAX)]


class MirrorSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How it is done."""

    hold: Annotated[str, Meta(min_length=1, max_length=bounds.NAME_BYTES_MAX)] = "mirror"
    """The name of the hold in each source; two mirrors of one cluster have two names."""
    mib_per_s: Annotated[float, Meta(ge=0.1, le=10_000.0)] = bounds.RESTORE_BYTES_PER_S / 2**20
    """How fast, all logs together."""
    metrics_port: Annotated[int, Meta(ge=0, le=65_535)] = 0
    """On the loopback address; 0: none."""


class PairSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One log of the source, and what it is in the target.

    truncate: a mirror that never lets go what the source has let go fills its disks; then it stops,
    and its hold fills the source's. So it follows, unless somebody says otherwise and truncates by
    other means, after the promote.
    """

    into: _Name = msgspec.field(default="", name="as")
    """The name in the target; empty: the same."""
    truncate: Literal["with-source", "never"] = "with-source"
    from_lsn: Annotated[int, Meta(ge=0)] = 0
    """Where a mirror that has not begun begins; 0: at the first LSN that there is."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    source: ClusterSection
    target: ClusterSection
    logs: Mapping[str, PairSection]
    mirror: MirrorSection = MirrorSection()


def load(path: Path) -> Settings:
    """Read the file. Raises InvalidArgument, naming the key."""
    try:
        text = read_regular(path, bounds.CONFIG_FILE_BYTES_MAX).decode("utf-8")
        found: Any = tomllib.loads(text)
        settings = msgspec.convert(found, Settings)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.DecodeError) as error:
        raise InvalidArgument(f"{path}: {error}", field="config") from error
    if not 0 < len(settings.logs) <= bounds.MIRROR_LOGS_MAX:
        raise InvalidArgument(
            f"{path}: logs names 1 to {bounds.MIRROR_LOGS_MAX} logs", field="logs"
        )
    names = [pair.into or name for name, pair in settings.logs.items()]
    for name in names:
        if names.count(name) > 1:
            raise InvalidArgument(f"{path}: two logs become {name!r}", field="logs")
    for section, cluster in (("source", settings.source), ("target", settings.target)):
        if not cluster.endpoints:
            raise InvalidArgument(f"{path}: no endpoints", field=f"{section}.endpoints")
    return settings
