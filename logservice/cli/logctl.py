"""`logctl`: talks to a cluster, for people and scripts. `exit_codes` says how commands end."""

from __future__ import annotations

import click

from logservice.cli.shell import exit_codes
from logservice.cli.shell.completion import completion_option
from logservice.cli.shell.lazy_group import LazyGroup
from logservice.server.version import server_version

_RECORDS = "logservice.cli.ctl.records"
_SHARDS = "logservice.cli.ctl.shards"
_CLUSTER = "logservice.cli.ctl.cluster"
_JOINING = "logservice.cli.ctl.joining"


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
        "admit": (f"{_JOINING}:admit", "Say that a store belongs to the cluster."),
        "joining": (f"{_JOINING}:joining", "How stores join: by themselves, or admitted."),
        "acl": ("logservice.cli.ctl.access:acl", "Who may do what."),
        "top": ("logservice.cli.ctl.top:top", "The cluster on the terminal, live."),
        "doctor": (
            "logservice.cli.ctl.doctor:doctor",
            "What is wrong with the cluster, and what to do.",
        ),
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
@click.option(
    "--tls-ca",
    envvar="LOGSERVICE_TLS_CA",
    default="",
    help="PEM file: who signed the stores' certificates (LOGSERVICE_TLS_CA).",
)
@click.option(
    "--tls-cert",
    envvar="LOGSERVICE_TLS_CERT",
    default="",
    help="PEM file: your certificate (LOGSERVICE_TLS_CERT).",
)
@click.option(
    "--tls-key",
    envvar="LOGSERVICE_TLS_KEY",
    default="",
    help="PEM file: its key (LOGSERVICE_TLS_KEY).",
)
@click.option(
    "--tls-server-name",
    envvar="LOGSERVICE_TLS_SERVER_NAME",
    default="",
    help="Name in the stores' certificates when it is not the address.",
)
@click.version_option(server_version(), prog_name="logctl")
@completion_option("logctl")
@click.pass_context
def logctl(
    context: click.Context,
    endpoints: str,
    timeout: float,
    tls_ca: str,
    tls_cert: str,
    tls_key: str,
    tls_server_name: str,
) -> None:
    """See `help` above."""
    from logservice_client.tls import tls_from_files

    from logservice.cli.ctl.client_session import Session

    tls = tls_from_files(tls_ca, tls_cert, tls_key, tls_server_name)
    context.obj = Session(endpoints, timeout, tls)


def main() -> None:
    """Run `logctl`; the entry point of the program."""
    exit_codes.run(logctl, "logctl")
