"""`logctl`: talks to a cluster, for people and scripts. `exit_codes` says how commands end."""

from __future__ import annotations

import click

from logservice.cli.shell import exit_codes
from logservice.cli.shell.completion import completion_option
from logservice.cli.shell.duration import duration
from logservice.cli.shell.lazy_group import LazyGroup
from logservice.server.version import server_version

_CTL = "logservice.cli.ctl"
_DECLARED = "logservice.cli.declared.commands"

_SECTIONS = {
    "Records": {
        "append": (f"{_CTL}.records:append", "Append records: arguments, or lines of stdin."),
        "read": (f"{_CTL}.records:read", "Print the records of a shard up to its tail."),
        "follow": (f"{_CTL}.records:follow", "Print the records of a shard, and wait for more."),
        "lsn-at": (f"{_CTL}.lsn_at:lsn_at", "Print the first LSN appended at a time, or later."),
        "truncate": (f"{_CTL}.shards:truncate", "Let every record up to an LSN go."),
        "writer": (f"{_CTL}.shards:writer", "Take the right to append, or give it back."),
        "hold": (f"{_CTL}.shards:hold", "Keep records from an LSN on, whatever is truncated."),
        "session": (
            f"{_CTL}.named_sessions:session",
            "Show a shard's named sessions, or let some go.",
        ),
        "digest": (
            f"{_CTL}.digests:digest",
            "Print the digest of a shard from FROM_LSN to before TO_LSN.",
        ),
        "timestamps": (f"{_CTL}.shards:timestamps", "Allocate timestamps that nobody else gets."),
        "ids": (f"{_CTL}.cluster:ids", "Allocate ids that nobody else gets."),
    },
    "Shards": {
        "shard": (f"{_CTL}.shard:shard", "Create, show, change, move, close or delete one shard."),
        "shards": (f"{_CTL}.shard_list:shards", "List the shards, and where their replicas are."),
        "transfer": (
            f"{_CTL}.cluster:transfer",
            "Hand the leadership of a shard to another store.",
        ),
    },
    "Stores": {
        "stores": (f"{_CTL}.store_verbs:stores", "Show all stores; drain, protect or forget one."),
        "store": (
            f"{_CTL}.store:store",
            "Show what one store says, or change how it runs.",
        ),
        "admit": (f"{_CTL}.joining:admit", "Say that STORE belongs to the cluster."),
        "joining": (f"{_CTL}.joining:joining", "Let stores join by themselves, or by verb only."),
    },
    "Cluster": {
        "cluster": (
            f"{_CTL}.cluster_wide:cluster",
            "Change settings, balance stores, stop repairs.",
        ),
        "operators": (f"{_CTL}.operators:operators", "Show what HAKeeper is doing, or end it."),
        "services": (f"{_CTL}.services:services", "Show the database's services, or order one."),
        "tn": (f"{_CTL}.tn_shards:tn", "Show TN shards, create or delete one."),
        "acl": (f"{_CTL}.access:acl", "Say who may do what."),
        "identities": (
            f"{_CTL}.identities:identities",
            "Show who has called the stores, and who was denied what.",
        ),
        "quota": (f"{_CTL}.quotas:quota", "Limit what identities use of each store."),
        "upgrade": (f"{_CTL}.upgrade:upgrade", "Show the cluster version, or raise it."),
        "diff": (f"{_DECLARED}:diff", "Show what `logctl apply FILE` would change."),
        "apply": (f"{_DECLARED}:apply", "Make the cluster what FILE declares."),
        "export": (f"{_DECLARED}:export", "Print the file that declares the cluster as it is."),
    },
    "Looking": {
        "self-test": (
            f"{_CTL}.self_test:self_test",
            "Measure disks and network from inside every STORE, or all of them.",
        ),
        "doctor": (f"{_CTL}.doctor:doctor", "Say what is wrong with the cluster, and what to do."),
        "top": (f"{_CTL}.top:top", "Show the cluster on the terminal, live."),
        "events": (f"{_CTL}.events:events", "Print what happened in the cluster, or follow it."),
        "repairs": (f"{_CTL}.cluster:repairs", "Show what is repaired, and what needs a person."),
    },
}


@click.group(
    cls=LazyGroup,
    sections=_SECTIONS,
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
    type=duration,
    default="10s",
    show_default=True,
    help="How long a command may take, retries included; where its help says so, each part of it"
    " (LOGSERVICE_TIMEOUT).",
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
    help="Name in the stores' certificates, if not the address (LOGSERVICE_TLS_SERVER_NAME).",
)
@click.option(
    "--token-file",
    envvar="LOGSERVICE_TOKEN_FILE",
    default="",
    help="File with a bearer token, read again when it changes (LOGSERVICE_TOKEN_FILE).",
)
@click.version_option(server_version(), prog_name="logctl")
@completion_option("logctl")
@click.pass_context
def logctl(context: click.Context, /, **options: object) -> None:
    """See `help` above."""
    from logservice.cli.ctl.client_session import Session

    context.obj = Session.of(context.params)


def main() -> None:
    """Run `logctl`; the entry point of the program."""
    exit_codes.run(logctl, "logctl")


if __name__ == "__main__":
    main()
