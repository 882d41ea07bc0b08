"""For all tests: set before anything imports gRPC.

Spark's gateway is started by a fork from the test process. gRPC's fork handlers, when its threads
are busy at that moment, give up half-way and close descriptors that the child still needs; a
process that only forks to exec does without them.
"""

from __future__ import annotations

import os

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
