"""`logctl`: talks to a cluster; for people and scripts. See `exit_codes` for how commands end."""

from __future__ import annotations

import click

from logservice.cli import exit_codes
from logservice.cli.lazy_group import LazyGroup
from logservice.server.version import server_version

_RECORDS = "logservice.cli.logctl_records"
_SHARDS = "logservice.cli.logctl_shards"
_CLUSTER = "logservice.cli.logctl_cluster"


@click.group(
    cls=LazyGroup,
    lazy={
        "append": (f"{_RECORDS}:append", "Append records."),
        "read": (f"{_RECORDS}:read", "Print records up to the tail."),
        "follow": (f"{_RECORDS}:follow", "Print records and wait for more."),
        "truncate": (f"{_SHARDS}:truncate", "Let every record up to an LSN go."),
        "status": (f"{_SHARDS}:status", "Positions, writer and holds of a shard."),
        "writer": (f"{_SHARDS}:writer", "The right to append."),
        "hold": (f"{_SHARDS}:hold", "Named LSNs from which on records stay."),
        "timestamps": (f"{_SHARDS}:timestamps", "Allocate timestamps."),
        "transfer": (f"{_CLUSTER}:transfer", "Hand the leadership of a shard over."),
        "shard": (f"{_CLUSTER}:shard", "Create shards."),
        "shards": (f"{_CLUSTER}:shards", "All shards and where their replicas are."),
        "stores": (f"{_CLUSTER}:stores", "All stores as HAKeeper sees them."),
        "store": (f"{_CLUSTER}:store", "What one store says about itself."),
        "repairs": (f"{_CLUSTER}:repairs", "What HAKeeper is repairing, and what needs a person."),
        "ids": (f"{_CLUSTER}:ids", "Allocate unique ids."),
    },
    help=f"Talk to a cluster of the log service.\n\n\b\nExit codes:\n{exit_codes.TABLE}",
)
@click.option(
    "--endpoints",
    envvar="LOGSERVICE_ENDPOINTS",
    default="",
    help="Client addresses of stores, host:port,... (LOGSERVICE_ENDPOINTS).",
)
@click.option(
    "--timeout",
    envvar="LOGSERVICE_TIMEOUT",
    type=click.FloatRange(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="Seconds a request may take, retries included.",
)
@click.version_option(server_version(), prog_name="logctl")
@click.pass_context
def logctl(context: click.Context, endpoints: str, timeout: float) -> None:
    """See `help` above."""
    from logservice.cli.client_session import Session

    context.obj = Session(endpoints, timeout)


def main() -> None:
    """Entry point."""
    exit_codes.run(logctl, "logctl")
