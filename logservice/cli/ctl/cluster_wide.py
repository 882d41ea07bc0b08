"""`logctl cluster`: what holds for the whole cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click
from logservice_client import LogClient
from logservice_wire.v1 import hakeeper_pb2

from logservice import bounds
from logservice.cli.ctl.balance import rebalance, zones
from logservice.cli.ctl.client_session import Session, pass_session
from logservice.cli.ctl.store_argument import store_argument
from logservice.cli.shell.duration import duration
from logservice.cli.shell.output import output_option, show_fields


@click.group()
def cluster() -> None:
    """Change settings, balance stores, stop repairs.

    These verbs are about the whole cluster.
    """


cluster.add_command(zones)
cluster.add_command(rebalance)

_BALANCE = click.Choice(["on", "manual", "off"])


CommandT = TypeVar("CommandT", bound=Callable[..., object])


def _rate(option: str, what: str) -> Callable[[CommandT], CommandT]:
    """A rate of every store, which the cluster's setting overrides."""
    return click.option(
        option,
        type=click.IntRange(0, bounds.CATCH_UP_BYTES_PER_S_MAX),
        metavar="BYTES_PER_S",
        help=f"{what}; 0: what it is configured to.",
    )


def _shown(state: hakeeper_pb2.ClusterState) -> dict[str, object]:
    return {
        "store_timeout_s": state.settings.store_timeout_ms / 1000,
        "default_replicas": state.settings.default_replicas,
        "joining": state.settings.joining,
        "replica_balance": state.settings.replica_balance,
        "leader_balance": state.settings.leader_balance,
        "replace_stuck": state.settings.replace_stuck,
        "catch_up_bytes_per_s": state.settings.catch_up_bytes_per_s or "as configured",
        "tail_read_bytes_per_s": state.settings.tail_read_bytes_per_s or "as configured",
        "catch_up_read_bytes_per_s": state.settings.catch_up_read_bytes_per_s or "as configured",
    }


@cluster.command()
@output_option
@pass_session
def settings(session: Session, form: str) -> None:
    """Show the settings in force.

    A store's configuration names them for the first start only.
    """
    state = session.run(lambda client: client.hakeeper.cluster_state(timeout=session.timeout_s))
    show_fields(form, _shown(state))


@cluster.command("set")
@click.option(
    "--store-timeout",
    "timeout_s",
    type=duration,
    default=0.0,
    help="Silence that ends a store's life.",
)
@click.option(
    "--replicas", type=click.IntRange(1, 9), help="Replicas of a shard that names no number."
)
@click.option("--joining", type=click.Choice(["automatic", "by-verb"]), help="How stores join.")
@click.option("--replica-balance", type=_BALANCE, help="Who begins to even replicas.")
@click.option("--leader-balance", type=_BALANCE, help="Who begins to even leaders.")
@click.option(
    "--replace-stuck",
    type=click.Choice(["on", "off"]),
    help="Whether a replica that applies nothing moves to another store.",
)
@_rate("--catch-up", "What a store sends to replicas that are far behind")
@_rate("--tail-reads", "What a store reads for clients from memory")
@_rate("--catch-up-reads", "What a store reads for clients from the disk")
@click.option("--force", is_flag=True, help="Also a time-out by which a live store is expired.")
@output_option
@pass_session
def set_(
    session: Session,
    timeout_s: float,
    replicas: int | None,
    joining: str | None,
    replica_balance: str | None,
    leader_balance: str | None,
    replace_stuck: str | None,
    catch_up: int | None,
    tail_reads: int | None,
    catch_up_reads: int | None,
    force: bool,
    form: str,
) -> None:
    """Change settings; what is not named stays.

    It prints the settings that are in force then.
    """

    async def work(client: LogClient) -> hakeeper_pb2.ClusterState:
        await client.hakeeper.change_settings(
            store_timeout_s=timeout_s,
            default_replicas=replicas or 0,
            joining=joining or "",
            replica_balance=replica_balance or "",
            leader_balance=leader_balance or "",
            replace_stuck=replace_stuck or "",
            catch_up_bytes_per_s=catch_up,
            tail_read_bytes_per_s=tail_reads,
            catch_up_read_bytes_per_s=catch_up_reads,
            force=force,
            timeout=session.timeout_s,
        )
        return await client.hakeeper.cluster_state(timeout=session.timeout_s)

    show_fields(form, _shown(session.run(work)))


@cluster.command()
@click.argument("phase", required=False)
@output_option
@pass_session
def phase(session: Session, phase: str | None, form: str) -> None:
    """Show the phase of the first start, or set it to PHASE.

    After a first start that failed, commands_received gives it a new deadline. Any other PHASE
    changes nothing. What is printed is the phase that is then.
    """

    async def work(client: LogClient) -> str:
        if phase is not None:
            return await client.hakeeper.set_phase(phase, timeout=session.timeout_s)
        return (await client.hakeeper.cluster_state(timeout=session.timeout_s)).state

    show_fields(form, {"phase": session.run(work)})


@cluster.command("repair-off")
@store_argument(metavar="[STORE]", required=False, default="")
@click.option("--for", "for_s", type=duration, required=True, help="How long; a week at most.")
@click.option("--reason", required=True, help="Why; it is shown as a flag.")
@output_option
@pass_session
def repair_off(session: Session, store_id: str, for_s: float, reason: str, form: str) -> None:
    """Replace no replica of STORE for a time.

    Its machine is worked on. Without STORE that holds for all stores.
    """
    session.run(
        lambda client: client.hakeeper.set_repair(
            for_s, store_id=store_id, reason=reason, timeout=session.timeout_s
        )
    )
    show_fields(form, {"store": store_id or "all", "repair_off_s": for_s})


@cluster.command("repair-on")
@store_argument(metavar="[STORE]", required=False, default="")
@output_option
@pass_session
def repair_on(session: Session, store_id: str, form: str) -> None:
    """Let repairs of STORE, or of all stores, go on."""
    session.run(
        lambda client: client.hakeeper.set_repair(0, store_id=store_id, timeout=session.timeout_s)
    )
    show_fields(form, {"store": store_id or "all", "repair_off_s": 0})
