"""Client of the log service: `LogClient` for asyncio, `SyncLogClient` for everybody else.

Errors are the classes of `logservice_wire.errors`, which are here, too, with their details as typed
attributes (``error.first_lsn``); blocks are made by `logservice_wire.block`. The package imports
grpc and `logservice_wire`, and nothing of the server. Start with `shard.py` (what can be asked of a
log). `appender.py` says how an append is made exactly once, `caller.py` how every other call is
repeated safely, `following.py` how a log is read on, and `routing.py` where a call goes.
"""

from logservice_wire.errors import (
    BeyondTail,
    Busy,
    ClientClosed,
    ClosedUnderWay,
    CodecMissing,
    CorruptBlock,
    DeadlineExceeded,
    DeleteRefused,
    Discontinuity,
    DiskFull,
    EventsCompacted,
    Fenced,
    Halted,
    HandshakeFailed,
    HoldLost,
    HoldRefused,
    InvalidArgument,
    LineageChanged,
    LogServiceError,
    NotEnoughStores,
    NotLeader,
    NotReady,
    Outcome,
    PermissionDenied,
    Reason,
    SequenceGap,
    SequenceReused,
    SessionExpired,
    ShardClosed,
    ShardDeleted,
    ShardExists,
    ShardNotFound,
    ShardRestoring,
    StaleEpoch,
    StaleTruncate,
    TooLarge,
    Truncated,
    Unauthenticated,
    UnknownOutcome,
    VerbRefused,
    WrongCluster,
    WrongExpectedLsn,
)

from logservice_client.client import LogClient
from logservice_client.digesting import RangeDigest
from logservice_client.follow import Follow
from logservice_client.following import Answer
from logservice_client.hakeeper import HakeeperClient
from logservice_client.held_log import HeldLog
from logservice_client.lag import Lag
from logservice_client.lineage import Lineage
from logservice_client.meter import Meter
from logservice_client.read_result import Gap, GapReason, LsnAtTime, ReadResult, Records
from logservice_client.redundancy import Redundancy
from logservice_client.shard import Shard
from logservice_client.sync import SyncFollow, SyncLogClient, SyncShard
from logservice_client.tls import Tls, TlsFiles
from logservice_client.version import __version__

__all__ = [
    "Answer",
    "BeyondTail",
    "Busy",
    "ClientClosed",
    "ClosedUnderWay",
    "CorruptBlock",
    "DeadlineExceeded",
    "DeleteRefused",
    "CodecMissing",
    "Discontinuity",
    "DiskFull",
    "EventsCompacted",
    "Fenced",
    "Follow",
    "Gap",
    "GapReason",
    "HakeeperClient",
    "Halted",
    "HandshakeFailed",
    "HeldLog",
    "HoldLost",
    "HoldRefused",
    "InvalidArgument",
    "Lag",
    "Lineage",
    "LineageChanged",
    "LogClient",
    "LogServiceError",
    "LsnAtTime",
    "Meter",
    "NotEnoughStores",
    "NotLeader",
    "NotReady",
    "Outcome",
    "PermissionDenied",
    "RangeDigest",
    "ReadResult",
    "Reason",
    "Records",
    "Redundancy",
    "SequenceGap",
    "SequenceReused",
    "SessionExpired",
    "Shard",
    "ShardClosed",
    "ShardDeleted",
    "ShardExists",
    "ShardNotFound",
    "ShardRestoring",
    "StaleEpoch",
    "StaleTruncate",
    "SyncFollow",
    "SyncLogClient",
    "SyncShard",
    "Tls",
    "TlsFiles",
    "TooLarge",
    "Truncated",
    "Unauthenticated",
    "UnknownOutcome",
    "VerbRefused",
    "WrongCluster",
    "WrongExpectedLsn",
    "__version__",
]
