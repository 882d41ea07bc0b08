"""`logservice`: runs stores and local clusters, inspects data directories."""

from __future__ import annotations

import click

from logservice.cli import exit_codes
from logservice.cli.completion import completion_option
from logservice.cli.lazy_group import LazyGroup
from logservice.server.version import server_version


@click.group(
    cls=LazyGroup,
    lazy={
        "store": ("logservice.cli.store_commands:store", "Run one store process."),
        "cluster": ("logservice.cli.cluster_commands:cluster", "A local cluster of processes."),
        "audit": ("logservice.cli.audit_commands:audit", "Verify a store's audit log."),
        "certs": ("logservice.cli.certs_commands:certs", "Certificates for stores and clients."),
        "logdb": ("logservice.cli.logdb_commands:logdb", "Inspect a data directory offline."),
    },
    help=f"Replicated write-ahead logs as a service.\n\n\b\nExit codes:\n{exit_codes.TABLE}",
)
@click.version_option(server_version(), prog_name="logservice")
@completion_option("logservice")
def logservice() -> None:
    """See `help` above."""


def main() -> None:
    """Entry point."""
    exit_codes.run(logservice, "logservice")
