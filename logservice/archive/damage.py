"""The error for an archive that is not what its archiver wrote."""

from __future__ import annotations

from logservice_wire.errors import CorruptBlock


class ArchiveDamaged(CorruptBlock):
    """What an archive has is not what was written there."""
