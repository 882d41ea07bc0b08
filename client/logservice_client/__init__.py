"""Client of the log service: `LogClient` for asyncio, `SyncLogClient` for everybody else.

Errors are the classes of `logservice_wire.errors`; blocks are made by `logservice_wire.block`. The
package imports grpc and `logservice_wire`, and nothing of the server. Start with `shard.py` (what
can be asked of a log). `appender.py` says how an append is made exactly once, `caller.py` how every
other call is repeated safely, and `routing.py` where a call goes.
"""

from logservice_client.client import LogClient
from logservice_client.digesting import RangeDigest
from logservice_client.hakeeper import HakeeperClient
from logservice_client.held_log import HeldLog
from logservice_client.lineage import Lineage
from logservice_client.meter import Meter
from logservice_client.read_result import Gap, GapReason, LsnAtTime, ReadResult, Records
from logservice_client.redundancy import Redundancy
from logservice_client.shard import Shard
from logservice_client.sync import SyncLogClient
from logservice_client.tls import Tls, TlsFiles

__all__ = [
    "Gap",
    "GapReason",
    "HakeeperClient",
    "HeldLog",
    "Lineage",
    "LogClient",
    "LsnAtTime",
    "Meter",
    "RangeDigest",
    "ReadResult",
    "Records",
    "Redundancy",
    "Shard",
    "SyncLogClient",
    "Tls",
    "TlsFiles",
]
