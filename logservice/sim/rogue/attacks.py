"""The attacks by name. A world draws some of them, so that one does not hide the others."""

from __future__ import annotations

from collections.abc import Callable

from logservice.sim.rogue import forgeries, requests
from logservice.sim.rogue.adversary import Adversary
from logservice.sim.rogue.forgeries import Maker
from logservice.sim.rogue.scene import Victim

Attack = Callable[[Adversary, Victim], None]


def _forging(*makers: Maker, huge: bool = False) -> Attack:
    def attack(rogue: Adversary, victim: Victim) -> None:
        draw = forgeries.huge_term if huge else forgeries.term_for
        maker = rogue.chance.choice(makers)
        sender = rogue.sender(victim)
        rogue.send(victim, maker(rogue, victim, sender, draw(rogue, victim)))

    return attack


def _snapshots(rogue: Adversary, victim: Victim) -> None:
    term = forgeries.term_for(rogue, victim)
    message = forgeries.install_snapshot(rogue, victim, rogue.sender(victim), term)
    if message is not None:
        rogue.send(victim, message)


def _minority_leader(rogue: Adversary, victim: Victim) -> None:
    """Ask one voter alone for its vote, in a shard where one is not enough; then lead it."""
    term = forgeries.term_for(rogue, victim)
    sender = rogue.sender(victim)
    raft = victim.replica.raft
    makers: tuple[Maker, ...] = (
        forgeries.vote,
        forgeries.append,
        forgeries.append,
        forgeries.heartbeat,
    )
    if raft.leader != 0 and rogue.chance.random() < 0.7:
        makers = makers[1:]
    for maker in makers:
        rogue.send(victim, maker(rogue, victim, sender, term))


def old_read(rogue: Adversary, victim: Victim) -> None:
    """The victim has just asked its leader for a linearization point: be faster."""
    term = victim.replica.raft.term
    rogue.send(victim, forgeries.read_answer(rogue, victim, rogue.sender(victim), term))


def _replays(rogue: Adversary, victim: Victim) -> None:
    """Send a batch of another moment again: its own to the same receiver, others' to anybody."""
    if not rogue.seen:
        return
    rogue.counts["batches replayed"] += 1
    identity, receiver, batch = rogue.chance.choice(rogue.seen)
    home = rogue.scene.home
    if home is not None and identity.store_id == home.store_id:
        store = next(one for one in rogue.world.stores if one.store_id == receiver)
        rogue.deliver(store, identity, batch, genuine=True)
        return
    rogue.deliver(victim.store, rogue.identity, batch)


ATTACKS: dict[str, Attack] = {
    "terms": _forging(*forgeries.ANY, huge=True),
    "votes": _forging(forgeries.vote),
    "vote-answers": _forging(forgeries.vote_answer),
    "acknowledgements": _forging(forgeries.append_answer, forgeries.heartbeat_answer),
    "leadership": _forging(forgeries.append, forgeries.append, forgeries.heartbeat),
    "minority-leader": _minority_leader,
    "timeout-now": _forging(forgeries.timeout_now),
    "quiesce": _forging(forgeries.quiesce),
    "snapshots": _snapshots,
    "reads": _forging(forgeries.read_request, forgeries.read_answer),
    "handover": _forging(forgeries.transfer, forgeries.local_report, forgeries.propose),
    "replays": _replays,
    "appends": requests.append,
    "commands": requests.command,
    "changes": requests.change,
    "transfers": requests.transfer,
    "administration": requests.administration,
    "others-heartbeats": requests.heartbeat_of_another,
    "own-heartbeats": requests.own_heartbeat,
    "joins": requests.joining,
    "findings": requests.finding,
    "vouching": requests.vouching,
    "beats": requests.beat,
    "questions": requests.question,
    "answers": requests.nothing,
}
"""By name. `answers`: it answers in its honest process's place (`answers.py`)."""

NOT_YET: frozenset[str] = frozenset()
"""Attacks against which no rule stands yet: they are drawn only when they are named."""
