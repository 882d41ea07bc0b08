"""Step: how a visit of the truncation worker, or what somebody asked for, ended."""

from __future__ import annotations

import enum


class Step(enum.StrEnum):
    """How one half of a visit ended. The values are counters that operators see."""

    INSTALLED = "installed"
    NOTHING_TRUNCATED = "nothing_truncated"
    """No whole entry lies at or below the truncation LSN."""
    LATER = "later"
    """The truncation LSN moved since the visit before, and covers little more than is installed."""
    KEPT_FOR_MEMBER = "kept_for_member"
    """What could go is what an active member of the shard still has to get from here."""
    DAMAGED_EXPORT = "damaged_export"
    """The export could not be read back; the next visit takes another one."""
    INSTALL_FAILED = "install_failed"

    EXPORTED = "exported"
    NOT_ADVANCED = "not_advanced"
    EXPORT_FAILED = "export_failed"
    EXPORT_WITHOUT_ROOM = "export_without_room"
    """The disk is above its mark and the export would not leave its floor; none was tried."""

    COMPACTED = "compacted"
    SHORT_LOG = "short_log"

    HALTED = "halted"
    STOPPED = "stopped"
    """The replica stopped, or was replaced by another, during the visit."""
    LEFTOVER_REMOVED = "leftover_removed"
    """Exports were removed of a replica that has no data here any more."""
    ALREADY_RUNNING = "already_running"
