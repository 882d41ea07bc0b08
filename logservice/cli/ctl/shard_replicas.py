"""`logctl shard move`, `add-replica`, `remove-replica`, `wishes`, `cancel`, `pin`, `unpin`: where
the replicas and the leader of one shard are.
"""

from __future__ import annotations

import click
from logservice_client import LogClient
from logservice_wire.v1 import hakeeper_pb2

from logservice.cli.ctl.client_session import Session, pass_session
from logservice.cli.ctl.progress import watch
from logservice.cli.ctl.shard_argument import shard_argument
from logservice.cli.ctl.store_argument import store_argument
from logservice.cli.shell import exit_codes
from logservice.cli.shell.duration import duration
from logservice.cli.shell.output import output_option, show_fields, show_rows

_shard = shard_argument("shard_id", hakeeper=True)
_reason = click.option("--reason", default="", help="Why; it is shown with the wish.")
_force = click.option("--force", is_flag=True, help="Do it although it is refused; it is audited.")
_wait = click.option(
    "--wait",
    "wait_s",
    type=duration,
    default=0.0,
    help="Wait so long at most, and show how far it is.",
)


@click.command()
@_shard
@store_argument("from_store", "FROM")
@store_argument("to_store", "TO")
@_reason
@_force
@_wait
@output_option
@pass_session
def move(
    session: Session,
    shard_id: int,
    from_store: str,
    to_store: str,
    reason: str,
    force: bool,
    wait_s: float,
    form: str,
) -> int:
    """Move the voter of SHARD on store FROM to store TO.

    It prints the wish; --wait shows its steps. Exit code 1 when the wish ended without a move.
    """
    return _wish(session, form, wait_s, shard_id, from_store, to_store, reason, force)


@click.command("add-replica")
@_shard
@store_argument("to_store", "TO")
@_reason
@_force
@_wait
@output_option
@pass_session
def add_replica(
    session: Session,
    shard_id: int,
    to_store: str,
    reason: str,
    force: bool,
    wait_s: float,
    form: str,
) -> int:
    """Bring the next voter that SHARD wants to store TO.

    It waits until the shard wants another voter: `logctl shard set SHARD --replicas N`.
    """
    return _wish(session, form, wait_s, shard_id, "", to_store, reason, force)


@click.command("remove-replica")
@_shard
@store_argument("from_store", "FROM")
@_reason
@_force
@_wait
@output_option
@pass_session
def remove_replica(
    session: Session,
    shard_id: int,
    from_store: str,
    reason: str,
    force: bool,
    wait_s: float,
    form: str,
) -> int:
    """Take the voter that SHARD wants no more from store FROM.

    It waits until the shard wants fewer voters: `logctl shard set SHARD --replicas N`.
    """
    return _wish(session, form, wait_s, shard_id, from_store, "", reason, force)


def _wish(
    session: Session,
    form: str,
    wait_s: float,
    shard_id: int,
    from_store: str,
    to_store: str,
    reason: str,
    force: bool,
) -> int:
    async def work(client: LogClient) -> tuple[int, str]:
        wish_id = await client.hakeeper.move_replica(
            shard_id,
            from_store=from_store,
            to_store=to_store,
            reason=reason,
            force=force,
            timeout=session.timeout_s,
        )
        if not wish_id or not wait_s:
            return wish_id, "" if wish_id else "done"
        results = []

        def seen(state: hakeeper_pb2.ClusterState) -> tuple[bool, str]:
            for wish in state.wishes:
                if wish.wish_id == wish_id:
                    results.append(wish.result)
                    step = wish.result or wish.step or "begins"
                    return bool(wish.result), f"wish {wish_id}: {step}"
            results.append("forgotten")
            return True, f"wish {wish_id} ended long ago"

        await watch(client, seen, wait_s)
        return wish_id, results[-1]

    wish_id, result = session.run(work)
    show_fields(form, {"shard": shard_id, "wish": wish_id or None, "result": result or None})
    return exit_codes.OK if result in ("", "done") else exit_codes.NEGATIVE


@click.command()
@output_option
@pass_session
def wishes(session: Session, form: str) -> None:
    """Show the wishes about replicas, and how the newest ended."""
    state = session.run(lambda client: client.hakeeper.cluster_state(timeout=session.timeout_s))
    rows = [
        {
            "wish": one.wish_id,
            "errand": one.errand,
            "shard": one.shard_id,
            "from": one.from_store or None,
            "to": one.to_store or None,
            "step": one.step,
            "result": one.result or None,
            "age_ticks": one.age_ticks,
            "reason": one.reason,
        }
        for one in state.wishes
    ]
    main = ("wish", "errand", "shard", "from", "to", "step", "result", "age_ticks")
    show_rows(form, rows, "wishes", main=main)


@click.command()
@click.argument("wish_id", metavar="WISH", type=click.IntRange(min=1))
@output_option
@pass_session
def cancel(session: Session, wish_id: int, form: str) -> None:
    """Withdraw WISH; what is not done yet is taken back."""
    session.run(lambda client: client.hakeeper.cancel_wish(wish_id, timeout=session.timeout_s))
    show_fields(form, {"wish": wish_id, "cancelled": True})


@click.command()
@_shard
@store_argument(metavar="[STORE]", required=False, default="")
@click.option("--for", "for_s", type=duration, required=True, help="How long; a week at most.")
@_reason
@output_option
@pass_session
def pin(
    session: Session, shard_id: int, store_id: str, for_s: float, reason: str, form: str
) -> None:
    """Keep the leader of SHARD on STORE for a time.

    Without STORE it stays where it is.
    """
    session.run(
        lambda client: client.hakeeper.set_leader(
            shard_id, for_s, store_id=store_id, reason=reason, timeout=session.timeout_s
        )
    )
    show_fields(form, {"shard": shard_id, "leader": store_id or "stays", "for_s": for_s})


@click.command()
@_shard
@output_option
@pass_session
def unpin(session: Session, shard_id: int, form: str) -> None:
    """Let the leader of SHARD go where it goes."""
    session.run(lambda client: client.hakeeper.set_leader(shard_id, 0, timeout=session.timeout_s))
    show_fields(form, {"shard": shard_id, "leader": "free"})


COMMANDS = (move, add_replica, remove_replica, wishes, cancel, pin, unpin)
"""What `logctl shard` has from here."""
