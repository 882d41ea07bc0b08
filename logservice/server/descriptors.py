"""descriptors: how many files and sockets this process may have open, and how they are divided.

Theory of operation. Every accepted connection takes a descriptor, so whoever may open connections
can take them all; and a store that cannot open a file any more cannot roll a segment. So the
process raises its limit to the hard one and sets aside what disks, peers and operators need.
Clients get the rest, up to a bound of their own: gRPC turns away connections above that bound
(``grpc.max_allowed_incoming_connections``).

INV-DESCRIPTORS-1: the shares add up to no more than the limit.
"""

from __future__ import annotations

import logging
import resource

from logservice_wire.errors import NotReady
from logservice_wire.value import value

from logservice import bounds
from logservice.invariants import invariant

logger = logging.getLogger(__name__)


@value
class Shares:
    """How the descriptors of this process are divided."""

    limit: int
    own: int
    """Disks, the admin port, and everything that is opened once and stays open."""
    peers: int
    clients: int

    def alarms(self) -> list[str]:
        """What a person must look at."""
        if self.limit >= bounds.DESCRIPTORS_WANTED:
            return []
        return [
            f"the limit of open files is {self.limit}, wanted are {bounds.DESCRIPTORS_WANTED} "
            f"(LimitNOFILE, ulimit -n): clients may have {self.clients} connections"
        ]


def raise_limit() -> int:
    """Raise the limit as far as the system allows; returns the limit that is in force then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    goal = bounds.DESCRIPTORS_MAX
    if hard != resource.RLIM_INFINITY:
        goal = min(goal, hard)
    if soft != resource.RLIM_INFINITY and soft < goal:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (goal, hard))
        except (OSError, ValueError) as error:
            logger.warning("the limit of open files stays at %d: %s", soft, error)
    return limit()


def limit() -> int:
    """Descriptors that this process may have."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return bounds.DESCRIPTORS_MAX if soft == resource.RLIM_INFINITY else soft


def share(among: int, directories: int) -> Shares:
    """Divide `among` descriptors in a store with that many data directories.

    Raises NotReady when there are too few to run a store at all.
    """
    if among < bounds.DESCRIPTORS_MIN:
        raise NotReady(
            f"the limit of open files is {among}; a store needs {bounds.DESCRIPTORS_MIN} "
            "(LimitNOFILE, ulimit -n)"
        )
    own = min(
        bounds.DESCRIPTORS_OWN + directories * bounds.DESCRIPTORS_OF_DIRECTORY, among * 3 // 4
    )
    peers = min(bounds.DESCRIPTORS_OF_PEERS, (among - own) // 2)
    clients = min(bounds.CLIENT_CONNECTIONS_MAX, among - own - peers)
    shares = Shares(limit=among, own=own, peers=peers, clients=clients)
    invariant(own + peers + clients <= among, "INV-DESCRIPTORS-1", shares=shares)
    return shares
