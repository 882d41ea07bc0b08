"""Soft bounds of `archive/`."""

from __future__ import annotations

from typing import Final

from logservice.bounds.hard import REJECTED_RANGES_MAX

ARCHIVE_OBJECT_BYTES: Final = 64 * 1024 * 1024
"""Bytes of blocks in an object: large enough that opening one costs nothing beside reading it, and
small enough that an archiver that was killed reads it again in a second."""

ARCHIVE_OBJECT_BYTES_MAX: Final = 1024 * 1024 * 1024
"""The most that a configuration may ask for."""

ARCHIVE_OBJECT_LSNS_MAX: Final = 16_000_000
"""LSNs in an object: an archive of empty records has objects of a bounded size, too."""

ARCHIVE_OBJECT_AGE_S: Final = 60.0
"""How long a record of a quiet log waits for others before an object is made for it."""

ARCHIVE_ROW_GROUP_BYTES: Final = 16 * 1024 * 1024
"""Bytes of a row group, which is in memory until it is written: Parquet compresses well from a
megabyte on."""

ARCHIVE_ROW_GROUP_BYTES_MAX: Final = 256 * 1024 * 1024
"""A row group of an archive that is read may say so much of itself: one of ours ends with the read
that fills it. It is in memory while it is read."""

ARCHIVE_READ_BYTES: Final = 4 * 1024 * 1024
"""Bytes that one read asks for: the cost of a call vanishes beside them."""

ARCHIVE_READ_ROWS: Final = 16_384
"""Rows of an object that are in memory while it is read back."""

RESTORE_CALL_ITEMS_MAX: Final = 1024
"""Blocks and gaps of one RestoreBlocks: each waits for its own outcome."""

RESTORE_MESSAGE_FIELDS_MAX: Final = RESTORE_CALL_ITEMS_MAX + 4
"""Fields of one RestoreBlocks: as many blocks and gaps as it may have, and what they are of."""

RESTORE_CALL_BYTES: Final = 4 * 1024 * 1024
"""Bytes of blocks that one RestoreBlocks brings: the cost of a call vanishes beside them. One block
may be larger; it goes by itself."""

RESTORE_BLOCK_BYTES: Final = 1024 * 1024
"""Records that were written at one time go into blocks of about this size, as a reader likes."""

RESTORE_BYTES_PER_S: Final = 32 * 1024 * 1024
"""At which a log is restored unless the operator says otherwise, so that the cluster's other logs
keep most of what the machines can do."""

CLUSTER_DOCUMENTS_MAX: Final = 16
"""Documents about the cluster that an archive keeps: what was changed by mistake can be found."""

CLUSTER_DOCUMENT_S: Final = 600.0
"""Between two looks at what is to be said of the cluster: each asks for the access list, which is
audited."""

CLUSTER_DOCUMENT_BYTES_MAX: Final = 64 * 1024 * 1024
"""A document that is read: of ten thousand logs with labels it has a few megabytes."""

RESTORED_GAPS_MAX: Final = REJECTED_RANGES_MAX // 2
"""Gaps of a log that is restored: half of what a log remembers, so that it can be appended to."""

RESTORE_PATIENCE_S: Final = 120.0
"""How long a restorer goes on trying while nothing succeeds: a lost store and an election take
seconds, a restart of all stores a minute. Afterwards it is started again, and goes on."""

RESTORE_VERIFICATIONS_MAX: Final = 16
"""Logs whose digest a store computes for the ends of restores at the same time; what is known of
another one is forgotten, and begun again when it is asked for."""

ARCHIVE_POLL_S: Final = 1.0
"""Between the first two looks at a log that has not enough for an object."""

ARCHIVE_POLL_MAX_S: Final = 15.0
"""The time doubles up to this: thousands of quiet logs are a few hundred small calls a second, and
an object is made so much later than its age says."""

ARCHIVE_CHOOSE_S: Final = 30.0
"""Between two looks for logs that were created or renamed."""

ARCHIVE_RETRY_S: Final = 5.0
"""A log whose last attempt failed waits so long for the next one: an election takes a second, and a
full disk takes a person."""

ARCHIVE_LOGS_AT_ONCE: Final = 4
"""Logs that read and write at the same time; each has a row group and a read in memory."""

ARCHIVE_REQUEST_S: Final = 30.0
"""How long a request to a bucket may take to connect, or stand still."""

ARCHIVE_UPLOAD_BYTES: Final = 8 * 1024 * 1024
"""Bytes that are handed to an upload at a time: a part of S3's has 5 MiB at least."""

ARCHIVE_LAG_SAMPLES_MAX: Final = 4096
"""Moments that are remembered to say how old the oldest record is that is not archived; beyond it
every second one is forgotten."""
