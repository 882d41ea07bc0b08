"""Every limit in one place: the unit is in the name, the reason beside the number.

*Hard* bounds are replicated or on disk: changing one is a format change. *Soft* bounds may differ
between stores and versions; the configuration file can override those it names.

| module | bounds of |
|---|---|
| `hard` | what is replicated or on disk, HAKeeper's decisions included |
| `raft`, `logdb` | the layer of that name |
| `nodehost` | requests, truncation, HAKeeper's shell, damage and repair |
| `transport` | connections between stores |
| `tokens` | bearer tokens and the keys of their issuer |
| `security` | identities, calls and streams of one caller, audit, certificates |
| `archive` | the archiver: objects, pauses |
| `mirror` | mirrors of logs in a second cluster: pauses, patience |
| `server` | calls, the admin port, the command line |

The code imports none of these modules, only this package (``bounds.NAME``, or ``from
logservice.bounds import NAME``), so that a bound can move from one module to another. So every name
is here, and each is stated once (`tests/tidy/test_bounds.py`). Start reading with `hard.py`. Every
layer may import this package, and it imports no other.
"""

from logservice.bounds.archive import *  # noqa: F403
from logservice.bounds.hard import *  # noqa: F403
from logservice.bounds.logdb import *  # noqa: F403
from logservice.bounds.mirror import *  # noqa: F403
from logservice.bounds.nodehost import *  # noqa: F403
from logservice.bounds.raft import *  # noqa: F403
from logservice.bounds.security import *  # noqa: F403
from logservice.bounds.server import *  # noqa: F403
from logservice.bounds.tokens import *  # noqa: F403
from logservice.bounds.transport import *  # noqa: F403
