"""Seeded bugs of trust: rules about whose word counts, left out one at a time.

Each lives in worlds with a rogue that tries what its rule is for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from logservice import bounds
from logservice.hakeeper.stores import enrolment, heartbeats
from logservice.ids import ReplicaId
from logservice.nodehost.agent import hakeeper_client
from logservice.nodehost.hearing import hearing
from logservice.nodehost.hearing.leadership import Leadership
from logservice.nodehost.hearing.term_budget import TermBudget
from logservice.nodehost.hearing.transfers import Transfers
from logservice.nodehost.integrity import comparison_answers
from logservice.nodehost.integrity.digests import Finding
from logservice.nodehost.integrity.divergence import judge
from logservice.nodehost.peers.requests import PeerRequests
from logservice.nodehost.replica.replica_table import ReplicaTable
from logservice.nodehost.routing import forwarding, router
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.sim.config import SimConfig
from logservice.sim.mutations.registry import mutation_in, wrap
from logservice.sim.rogue import Worlds, make_rogue


def attacked(
    *attacks: str, who: Worlds = Worlds.NONE, most: bool = False, apart: bool = False
) -> Callable[[SimConfig], None]:
    """Gentle worlds with a rogue that does nothing else; `most`: shards of five replicas; `apart`:
    it has no replica of shard 0.
    """

    def change(config: SimConfig) -> None:
        config.calm = True
        make_rogue(config, attacks, who)
        config.rogue_per_s = 10.0
        if apart:
            config.stores = config.rogue_store = max(5, config.stores)
            config.threaded_disks = (False,) * config.stores
            config.directories = (1,) * config.stores
        if most:
            # Nobody votes while a leader is heard.
            config.calm, config.ages = False, False
            config.crash_interval_s, config.power_share, config.down_s = 1.0, 0.0, 0.5
            config.stores, config.replicas = max(5, config.stores), 5
            config.threaded_disks = (False,) * config.stores
            config.directories = (1,) * config.stores

    return change


# --- Raft messages --------------------------------------------------------------------------------


@mutation_in(attacked("votes", "leadership", "snapshots", who=Worlds.STRANGER))
def _strangers_are_heard() -> None:
    def mutate(original: Any) -> Any:
        def hear(self: hearing.Hearing, peer: Any, message: Any) -> Any:
            if self.members.get(message.sender) is None:
                return message
            return original(self, peer, message)

        return hear

    wrap(hearing.Hearing, "hear", mutate)


@mutation_in(attacked("votes", "leadership", "acknowledgements"))
def _anybody_speaks_for_anybody() -> None:
    wrap(PeerIdentity, "may_speak_for", lambda _: lambda self, member: True)


@mutation_in(attacked("terms", "votes", "acknowledgements", who=Worlds.MEMBER))
def _terms_rise_by_any_step() -> None:
    wrap(bounds, "TERM_STEP", lambda _: 2**62)


@mutation_in(attacked("vote-answers", "acknowledgements", who=Worlds.MEMBER))
def _one_member_raises_terms_as_often_as_it_likes() -> None:
    wrap(TermBudget, "spend", lambda _: lambda self, *_, **__: True)


@mutation_in(attacked("votes", who=Worlds.MEMBER))
def _any_campaign_passes_for_a_transfer() -> None:
    wrap(Transfers, "allowed", lambda _: lambda *_: True)
    # Else the budget of its terms bounds what it costs.
    wrap(TermBudget, "spend", lambda _: lambda self, *_, **__: True)


@mutation_in(attacked("timeout-now", who=Worlds.MEMBER))
def _anybody_lets_anybody_campaign() -> None:
    wrap(hearing, "_OF_A_LEADER", lambda _: frozenset())
    # Else nobody looks at the campaign.
    wrap(Transfers, "allowed", lambda _: lambda *_: True)


@mutation_in(attacked("leadership", "minority-leader", who=Worlds.MEMBER))
def _who_says_that_it_leads_is_followed() -> None:
    wrap(Leadership, "_elected", lambda _: lambda *_: True)


@mutation_in(attacked("minority-leader", who=Worlds.MEMBER, most=True))
def _ones_own_vote_is_a_majority() -> None:
    def mutate(original: Any) -> Any:
        def elected(self: Leadership, claimant: ReplicaId, claim: Any) -> bool:
            mine = self._raft.term == claim.term and self._raft.vote == claimant
            return mine or bool(original(self, claimant, claim))

        return elected

    wrap(Leadership, "_elected", mutate)


@mutation_in(attacked("handover", who=Worlds.MEMBER))
def _entries_of_peers_pass_by_admission() -> None:
    wrap(hearing, "_NOT_FOR_PEERS", lambda _: frozenset())


@mutation_in(attacked("snapshots", "leadership", who=Worlds.TRAITOR))
def _what_breaks_a_replica_ends_its_store() -> None:
    def mutate(original: Any) -> Any:
        def halt(self: ReplicaTable, replica: Any, reason: str, broken: Any = None) -> None:
            if broken is not None:
                self._on_fatal(broken)
            original(self, replica, reason)

        return halt

    wrap(ReplicaTable, "halt", mutate)
    wrap(hearing, "snapshot_problem", lambda _: lambda *_: "")
    wrap(hearing, "contradicts", lambda _: lambda *_: False)


# --- requests -------------------------------------------------------------------------------------


@mutation_in(attacked("findings", who=Worlds.MEMBER))
def _finding_is_believed() -> None:
    def mutate(_: Any) -> Any:
        async def on_finding(self: Any, peer: Any, found: Finding) -> None:
            replica = self._asked(peer, found)
            digests = {ReplicaId(one): digest for one, digest in found.digests}
            if judge(replica.raft.membership, digests).wrong or found.waited:
                self._replicas.halt(replica, "somebody says so")

        return on_finding

    wrap(comparison_answers.ComparisonAnswers, "_on_finding", mutate)


@mutation_in(attacked("appends"))
def _forwarded_blocks_are_not_looked_at() -> None:
    def count_of(block: bytes, **_: Any) -> int:
        return counts.pop()

    counts: list[int] = []

    def mutate(question: Any) -> Any:
        def decode(body: bytes, sender: Any) -> Any:
            at = 1 + body[0]
            counts.append(forwarding._APPEND.unpack_from(body, at)[6])
            return question.decode(body, sender)

        return dataclasses.replace(question, decode=decode)

    wrap(forwarding, "validate_block", lambda _: count_of)
    wrap(forwarding, "APPEND", mutate)
    wrap(PeerRequests, "_allows", lambda _: lambda *_: True)


@mutation_in(attacked("commands", who=Worlds.MEMBER))
def _everything_is_forwarded() -> None:
    wrap(router, "is_forwarded", lambda _: lambda command: True)


@mutation_in(attacked("commands", "appends", "beats", "findings", who=Worlds.STRANGER))
def _requests_of_anybody_are_served() -> None:
    wrap(PeerRequests, "_allows", lambda _: lambda *_: True)
    wrap(router, "is_forwarded", lambda _: lambda command: True)


@mutation_in(attacked("administration"))
def _administration_is_forwarded() -> None:
    wrap(hakeeper_client, "_OF_A_STORE", lambda _: object)
    wrap(PeerRequests, "_allows", lambda _: lambda *_: True)


@mutation_in(attacked("others-heartbeats"))
def _anybody_beats_for_anybody() -> None:
    def mutate(_: Any) -> Any:
        async def serve(self: Any, peer: Any, asked: Any) -> Any:
            return await self._apply(asked)

        return serve

    wrap(hakeeper_client.HAKeeperClient, "_serve_heartbeat", mutate)


@mutation_in(attacked("own-heartbeats", who=Worlds.MEMBER))
def _reports_of_others_replicas_count() -> None:
    wrap(heartbeats, "speaks", lambda _: lambda *_: True)
    wrap(heartbeats, "confirmed", lambda _: lambda *_: True)


@mutation_in(attacked("own-heartbeats", who=Worlds.MEMBER))
def _one_report_moves_a_membership() -> None:
    wrap(heartbeats, "confirmed", lambda _: lambda *_: True)


@mutation_in(attacked("joins", who=Worlds.STRANGER))
def _a_store_joins_with_anothers_directory() -> None:
    wrap(enrolment, "_taken", lambda _: lambda *_: "")


@mutation_in(attacked("answers", who=Worlds.MEMBER, apart=True))
def _anybody_answers_for_hakeeper() -> None:
    def mutate(original: Any) -> Any:
        def targets(self: Any) -> list[Any]:
            me, addresses = self._host.identity.store_id, self._book.peer_addresses()
            known = sorted((one for one in addresses if one != me), reverse=True)
            return list(dict.fromkeys([*known, *original(self)]))

        return targets

    wrap(hakeeper_client.HAKeeperClient, "_targets", mutate)
