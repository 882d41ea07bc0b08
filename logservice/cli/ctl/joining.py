"""`logctl admit`, `logctl joining`: which stores belong to the cluster.

`hakeeper.stores.enrolment` decides what follows from it.
"""

from __future__ import annotations

import click

from logservice.cli.ctl.client_session import Session, pass_session
from logservice.cli.ctl.store_argument import store_argument
from logservice.cli.shell.output import output_option, show_fields


@click.command()
@store_argument()
@click.option(
    "--hakeeper",
    is_flag=True,
    help="It may also get a replica of shard 0, which decides about all others.",
)
@output_option
@pass_session
def admit(session: Session, store_id: str, hakeeper: bool, form: str) -> None:
    """Say that STORE belongs to the cluster.

    A store joins by itself unless the cluster was told otherwise (`logctl joining`), but it gets no
    replica of shard 0 for that: say --hakeeper when it stands in for a store that had one.
    """
    session.run(
        lambda client: client.hakeeper.admit_store(
            store_id, hakeeper=hakeeper, timeout=session.timeout_s
        )
    )
    show_fields(form, {"store": store_id, "hakeeper": hakeeper})


@click.command()
@click.argument("how", type=click.Choice(["automatic", "by-verb"]))
@output_option
@pass_session
def joining(session: Session, how: str, form: str) -> None:
    """Let stores join by themselves, or by verb only.

    By themselves is by their first heartbeat; by verb is by `logctl admit`.
    """
    session.run(lambda client: client.hakeeper.set_joining(how, timeout=session.timeout_s))
    show_fields(form, {"joining": how})
