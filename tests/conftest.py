"""For all tests: set before anything imports gRPC, or uses Hypothesis.

Spark's gateway is started by a fork from the test process. gRPC's fork handlers, when its threads
are busy at that moment, give up half-way and close descriptors that the child still needs; a
process that only forks to exec does without them.

Hypothesis takes an example that needs more than 200 ms for a failure, and slow generation, too: on
a busy machine any example may. What else it is set to by itself, where CI is set, stays.

A shell starts what runs in the background with SIGINT ignored, and a child inherits that: a test
that interrupts a command would wait for ever.
"""

from __future__ import annotations

import os
import signal

from hypothesis import HealthCheck, settings

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
settings.register_profile(
    "busy", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("busy")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
