"""service_holds: set, move and release the holds of services in the logs that are led here.

Theory of operation. HAKeeper names what differs from its wish in a log that this store leads
(`hakeeper.stores.service_holds`). Each difference becomes one command of the log, the same that a
client would send, in the name of the service's identity. The local state says first what is left to
do: between a command and the next report the same order comes again. It also knows better than
HAKeeper how far the log is truncated, so a hold is asked for no lower than what is left.

A store that no longer leads proposes nothing that counts. An order that comes late moves a hold
where it was wanted before, until the next answer; it never removes a hold that is wanted, because
every wish has a name of its own (INV-HK-SERVICE-HOLD).

A hold that cannot be set, since the log or the identity has as many as there may be, is told of in
the log of events, and its service hears that nothing is held.
"""

from __future__ import annotations

import logging

from logservice_wire.errors import HoldRefused, LogServiceError, NotLeader

from logservice import bounds
from logservice.events import Event, emit
from logservice.hakeeper.commands.replies import HoldOrder
from logservice.ids import Lsn
from logservice.nodehost.node_host import NodeHost
from logservice.owner import Author
from logservice.rsm import commands
from logservice.rsm.queries import LogStatus, LogStatusQuery
from logservice.service_hold import is_service_hold

logger = logging.getLogger(__name__)


async def carry_out(host: NodeHost, order: HoldOrder) -> None:
    """Propose what is left to do of the order. Failures are logged: HAKeeper asks again."""
    try:
        command = _command(host, order)
        if command is not None:
            encoded = commands.encode(command)
            await host.propose(order.shard, encoded, bounds.STORE_COMMAND_TIMEOUT_S)
    except (NotLeader, HoldRefused) as error:
        # Ordinary: the log has another leader, or was truncated between the look and the command.
        logger.info("shard %d: %s waits: %s", order.shard, order.name, error)
    except LogServiceError as error:
        emit(logger, Event.SERVICE_HOLD_REFUSED, shard=order.shard, hold=order.name, error=error)


def _command(host: NodeHost, order: HoldOrder) -> commands.Command | None:
    known_here = host.replicas.info(order.shard)
    if not is_service_hold(order.name) or known_here is None or known_here.witness:
        return None
    status = host.stale_lookup(order.shard, LogStatusQuery())
    assert isinstance(status, LogStatus)
    known = next((hold for hold in status.holds if hold.name == order.name), None)
    store = host.identity.store_id
    if order.lsn:
        lsn = Lsn(max(order.lsn, status.first_lsn))
        if known is not None and known.lsn == lsn:
            return None
        return commands.SetHoldFor(Author(order.owner, store), False, lsn, 0, order.name)
    if known is None:
        return None
    return commands.ReleaseHold(Author(known.owner, store), False, order.name)
