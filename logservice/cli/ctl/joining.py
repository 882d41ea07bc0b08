"""`logctl admit`, `logctl joining`: which stores belong to the cluster.

`hakeeper.stores.enrolment` decides what follows from it.
"""

from __future__ import annotations

import click
from logservice_client import LogClient

from logservice.cli.ctl.client_session import Session, pass_session
from logservice.cli.ctl.store_argument import store_argument
from logservice.cli.shell.output import output_option, say, show_fields
from logservice.safe_text import safe_text


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
    replica of shard 0 for that: say --hakeeper when it stands in for a store that had one. It may
    be admitted before it starts; a note says that no store of that name is there.
    """

    async def work(client: LogClient) -> list[str]:
        await client.hakeeper.admit_store(store_id, hakeeper=hakeeper, timeout=session.timeout_s)
        state = await client.hakeeper.cluster_state(timeout=session.timeout_s)
        return [one.store_id for one in state.stores]

    known = session.run(work)
    if store_id not in known:
        say(
            f"note: no store called {safe_text(store_id)} has joined yet; it is admitted ahead of"
            f" its first start. There are {safe_text(', '.join(known)) or 'none'}",
            err=True,
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
