"""`logservice`: runs stores and local clusters, inspects data directories."""

from __future__ import annotations

import click

from logservice.cli.shell import exit_codes
from logservice.cli.shell.completion import completion_option
from logservice.cli.shell.lazy_group import LazyGroup
from logservice.server.version import server_version

_PROCESSES = "logservice.cli.processes"
_OFFLINE = "logservice.cli.offline"
_CERTIFICATES = "logservice.cli.certificates"


@click.group(
    cls=LazyGroup,
    sections={
        "Commands": {
            "store": (
                f"{_PROCESSES}.store_commands:store",
                "Run one store process, or look after one.",
            ),
            "cluster": (
                f"{_PROCESSES}.cluster_commands:cluster",
                "Run a cluster of processes on this machine.",
            ),
            "archive": (
                f"{_PROCESSES}.archive_commands:archive",
                "Archive the logs of a cluster, look at the archive, or restore a log from it.",
            ),
            "mirror": (
                f"{_PROCESSES}.mirror_commands:mirror",
                "Keep standby copies of logs in a second cluster, and promote them.",
            ),
            "audit": (f"{_OFFLINE}.audit_commands:audit", "Verify a store's audit log."),
            "certs": (
                f"{_CERTIFICATES}.commands:certs",
                "Issue and revoke certificates.",
            ),
            "logdb": (
                f"{_OFFLINE}.logdb_commands:logdb",
                "Inspect a data directory without its store.",
            ),
            "recover": (
                f"{_OFFLINE}.recover_commands:recover",
                "Go on without a majority whose disks are lost for good.",
            ),
        }
    },
    help=f"Replicated write-ahead logs as a service.\n\n\b\nExit codes:\n{exit_codes.TABLE}",
)
@click.version_option(server_version(), prog_name="logservice")
@completion_option("logservice")
def logservice() -> None:
    """See `help` above."""


def main() -> None:
    """Run `logservice`; the entry point of the program."""
    exit_codes.run(logservice, "logservice")


if __name__ == "__main__":
    main()
