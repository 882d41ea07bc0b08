"""`logctl cluster zones`, `logctl cluster rebalance`: where replicas and leaders are, and evening
them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

import click
from logservice_client import LogClient
from logservice_wire.errors import DeadlineExceeded
from logservice_wire.v1 import hakeeper_pb2

from logservice.cli.ctl.client_session import Session, pass_session
from logservice.cli.ctl.time_left import left_s, now_s
from logservice.cli.shell.duration import duration
from logservice.cli.shell.output import output_option, say, show_rows
from logservice.safe_text import safe_text

_ASK_S: Final = 0.5
"""Between two looks at what is left to move."""


@click.command()
@output_option
@pass_session
def zones(session: Session, form: str) -> None:
    """Show the zones, and what is in each.

    That is stores, replicas, leaders, and the shards that need the zone.

    A shard needs a zone when a majority of its replicas is there: without the zone it stops. The
    zone of a store is the label `zone` of its configuration, with `region` in front if that is
    named.
    """
    state = session.run(lambda client: client.hakeeper.cluster_state(timeout=session.timeout_s))
    show_rows(form, zone_rows(state), "zones")


def zone_rows(state: hakeeper_pb2.ClusterState) -> list[dict[str, object]]:
    """One row for each zone, and one for the stores that name none."""
    zone_of = {store.store_id: store.zone for store in state.stores}
    replicas: Counter[str] = Counter()
    leaders: Counter[str] = Counter()
    needed: Counter[str] = Counter()
    for shard in state.shards:
        voters = Counter(one.zone for one in shard.replicas if one.role != "learner")
        replicas.update(one.zone for one in shard.replicas)
        needed.update(zone for zone, here in voters.items() if 2 * here > voters.total())
        if shard.leader_store in zone_of:
            leaders[zone_of[shard.leader_store]] += 1
    rows: list[dict[str, object]] = []
    for zone in sorted({*zone_of.values(), *replicas}):
        stores = [store for store in state.stores if store.zone == zone]
        rows.append(
            {
                "zone": zone or None,
                "stores": len(stores),
                "alive": sum(not store.expired for store in stores),
                "replicas": replicas[zone],
                "leaders": leaders[zone],
                "needed_by": needed[zone],
                "disk_used_bytes": sum(store.disk_used_bytes for store in stores),
                "disk_free_bytes": sum(store.disk_free_bytes for store in stores),
            }
        )
    return rows


@click.command()
@click.option("--replicas", is_flag=True, help="Only replicas; the default is both.")
@click.option("--leaders", is_flag=True, help="Only leaders.")
@click.option("--dry-run", is_flag=True, help="Say what would move and why, and change nothing.")
@click.option("--stop", is_flag=True, help="End it; what is under way is finished.")
@click.option("--wait", "wait_s", type=duration, help="Wait so long at most until nothing is left.")
@output_option
@pass_session
def rebalance(
    session: Session,
    replicas: bool,
    leaders: bool,
    dry_run: bool,
    stop: bool,
    wait_s: float | None,
    form: str,
) -> None:
    """Even the stores' replicas and leaders.

    It prints what there is to move, and why. HAKeeper moves a few replicas at a time, and none
    while a shard lacks one. It goes on until nothing is left that pays.
    """
    wanted = {"replicas": replicas or not leaders, "leaders": leaders or not replicas}

    async def work(client: LogClient) -> hakeeper_pb2.BalancePlan:
        plan = await client.hakeeper.balance_plan(**wanted, timeout=session.timeout_s)
        if not dry_run:
            await client.hakeeper.rebalance(**wanted, stop=stop, timeout=session.timeout_s)
        return plan

    plan = session.run(work)
    show_rows(form, _rows(plan), "to move")
    if plan.more:
        say("more than is listed here", err=True)
    if plan.waits:
        say(f"no replica moves now: {safe_text(plan.waits)}", err=True)
    if wait_s is not None and not dry_run and not stop:
        limit_s = wait_s
        session.run(lambda client: _until_even(client, wanted, limit_s))


def _rows(plan: hakeeper_pb2.BalancePlan) -> list[dict[str, object]]:
    return [
        {
            "what": what,
            "shard": one.shard_id,
            "from": one.from_store,
            "to": one.to_store,
            "why": one.why,
        }
        for what, moves in (("replica", plan.moves), ("leader", plan.hand_overs))
        for one in moves
    ]


async def _until_even(client: LogClient, wanted: dict[str, bool], timeout_s: float) -> None:
    """Look until HAKeeper has ended what was begun. Raises DeadlineExceeded: it goes on."""
    ends_s, shown = now_s() + timeout_s, ""
    while True:
        plan = await client.hakeeper.balance_plan(**wanted, timeout=left_s(ends_s))
        if not plan.replicas_wished and not plan.leaders_wished:
            return
        line = (
            f"{len(plan.moves)} replicas and {len(plan.hand_overs)} leaders left to move"
            if plan.moves or plan.hand_overs
            else "nothing is left to begin; HAKeeper ends it when what is under way is done"
        )
        line += f"; it waits: {plan.waits}" if plan.waits else ""
        if line != shown:
            say(safe_text(line), err=True)
            shown = line
        if now_s() >= ends_s:
            raise DeadlineExceeded("not done yet; it goes on without anybody who waits")
        await asyncio.sleep(_ASK_S)
