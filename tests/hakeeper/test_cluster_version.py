"""The cluster version: what is written before and after it is raised, and who holds it back."""

from __future__ import annotations

import msgspec
import pytest
from logservice_wire.errors import NotReady, Reason

from logservice.entry import Entry, EntryKind
from logservice.envelope import ProposalId, encode_command
from logservice.hakeeper import state as states
from logservice.hakeeper.answers.views import cluster_view
from logservice.hakeeper.commands import proposals, replies, store_commands, versioned
from logservice.hakeeper.commands.phase import Phase
from logservice.hakeeper.commands.proposals import RaiseVersion
from logservice.hakeeper.rsm import HAKeeperRsm
from logservice.ids import Incarnation, Index, Lsn, StoreId, Term
from logservice.outcome import Applied, Rejected
from logservice.snapshot import SnapshotCorrupt
from logservice.versions import (
    FIRST,
    KNOWN,
    NEWEST,
    ONLY_FIRST,
    RANGE_LABEL,
    USED_LABEL,
    VersionRange,
    said,
    used,
    used_labels,
)
from tests.hakeeper.model import Model, expiry, rejected

REPLY = replies.HeartbeatReply(Phase.RUNNING, 7)


def upgraded(model: Model, *names: str) -> None:
    """These stores run the newer program from now on, and HAKeeper has heard of it."""
    for name in names:
        model.stores[StoreId(name)].versions = KNOWN
        model.revive(name)
    model.run(20)


def raised() -> Model:
    model = Model(versions=KNOWN)
    model.start()
    assert model.state.cluster_version == NEWEST
    return model


def test_a_cluster_of_older_programs_stays_at_the_first_version() -> None:
    model = Model()
    model.start()
    assert model.state.cluster_version == FIRST
    assert model.rsm.save_snapshot()[:1] == states._VERSIONS[FIRST]


def test_a_new_cluster_begins_at_what_all_of_its_stores_know() -> None:
    assert raised().rsm.save_snapshot()[:1] == states._VERSIONS[NEWEST]
    mixed = Model(4, versions=KNOWN)
    mixed.stores[StoreId("s4")].versions = ONLY_FIRST
    mixed.start()
    assert mixed.state.cluster_version == FIRST


def test_the_version_is_raised_when_every_store_knows_the_next_one() -> None:
    """INV-HK-VERSION."""
    model = Model()
    model.start()
    upgraded(model, "s1", "s2")
    outcome = model.propose(RaiseVersion(NEWEST))
    assert isinstance(outcome, Rejected)
    assert outcome.reason is Reason.VERB_REFUSED
    assert outcome.metadata["stores"] == "s3"
    assert model.state.cluster_version == FIRST
    upgraded(model, "s3")
    assert model.propose(RaiseVersion(NEWEST)) == Applied(value=NEWEST)
    assert model.propose(RaiseVersion(NEWEST)) == Applied(value=NEWEST, duplicate=True)
    assert model.state.cluster_version == NEWEST


def test_a_store_that_is_away_holds_the_version_back() -> None:
    """INV-HK-VERSION: it may be taken back to the older program meanwhile."""
    model = Model(4)
    model.start()
    upgraded(model, "s1", "s2", "s3", "s4")
    model.kill("s4")
    model.run(expiry(model) + 1)
    assert rejected(model.propose(RaiseVersion(NEWEST))) is Reason.VERB_REFUSED
    model.revive("s4")
    model.run(20)
    assert model.propose(RaiseVersion(NEWEST)) == Applied(value=NEWEST)


def test_a_store_that_is_gone_for_good_and_holds_nothing_does_not_hold_the_version_back() -> None:
    """It is refused when it comes back with the older program."""
    model = Model(4)
    model.start()
    upgraded(model, "s1", "s2", "s3")
    model.kill("s4")
    model.run(expiry(model) + 600)
    for oracle in model.shards.values():
        named = {one.store_id for one in oracle.membership.members}
        assert StoreId("s4") not in named
    assert model.propose(RaiseVersion(NEWEST)) == Applied(value=NEWEST)


def test_the_version_grows_by_one() -> None:
    """INV-HK-VERSION."""
    model = raised()
    far = VersionRange(FIRST, NEWEST + 5)
    for store in model.stores.values():
        store.versions = far
    model.run(20)
    assert rejected(model.propose(RaiseVersion(NEWEST + 2))) is Reason.INVALID_ARGUMENT
    assert model.state.cluster_version == NEWEST


def test_an_older_program_is_turned_away_after_the_raise_and_its_replicas_are_replaced() -> None:
    model = Model(4, versions=KNOWN)
    model.start()
    leading = {
        member.store_id
        for oracle in model.shards.values()
        for member in oracle.membership.members
        if member.replica_id == oracle.leader
    }
    name = next(one for one in model.stores if one not in leading)
    model.stores[name].versions = ONLY_FIRST
    model.revive(name)
    model.run(expiry(model) + 2)
    turned_away = f"store {name} was turned away: the cluster is at version 2"
    assert any(turned_away in flag for flag in model.state.flags)
    model.run(600)
    for oracle in model.shards.values():
        voters = {oracle.membership.member(voter) for voter in oracle.membership.voters}
        assert name not in {one.store_id for one in voters if one is not None}
        assert len(voters) == 3


def test_what_a_newer_program_proposes_too_early_changes_nothing() -> None:
    """Replicas of the older program do not understand it, so no replica may."""
    model = Model()
    model.start()
    before = model.rsm.save_snapshot()
    tick = proposals.encode(proposals.Tick(Term(model.term)), NEWEST)
    entry = Entry(
        Term(model.term),
        Index(model.state.index),
        Lsn(1),
        0,
        EntryKind.COMMAND,
        encode_command(ProposalId(7, 1), tick),
    )
    [(_, outcome)] = model.rsm.update(entry)
    assert outcome == Rejected(Reason.INVALID_ARGUMENT, {"field": "command"})
    assert model.rsm.save_snapshot() == before


def test_the_older_form_of_a_proposal_is_understood_after_the_raise() -> None:
    model = raised()
    tick = proposals.encode(proposals.Tick(Term(model.term)), FIRST)
    assert proposals.decode_versioned(tick) == (proposals.Tick(Term(model.term)), FIRST)


def test_a_state_is_written_and_read_in_the_form_of_its_cluster_version() -> None:
    older = Model()
    older.start()
    for model, version in ((older, FIRST), (raised(), NEWEST)):
        image = model.rsm.save_snapshot()
        assert image[:1] == states._VERSIONS[version]
        twin = HAKeeperRsm()
        twin.recover_from_snapshot(image)
        assert twin.state == model.state
        assert twin.save_snapshot() == image
        other = states._VERSIONS[NEWEST + FIRST - version]
        with pytest.raises(SnapshotCorrupt):
            twin.recover_from_snapshot(other + image[1:])


@pytest.mark.parametrize("version", [FIRST, NEWEST])
def test_a_reply_names_the_version_that_it_is_written_in(version: int) -> None:
    reply = msgspec.structs.replace(REPLY, cluster_version=version)
    data = replies.encode(reply)
    assert data[:1] == replies._VERSIONS[version]
    assert replies.decode(data) == reply


def test_the_form_of_an_older_version_has_nothing_newer_in_it() -> None:
    """Its readers forbid what they do not know, so more than they know is no such form."""
    data = replies.encode(msgspec.structs.replace(REPLY, cluster_version=NEWEST))
    with pytest.raises(replies.ReplyCorrupt):
        replies.decode(replies._VERSIONS[FIRST] + data[1:])


class Grown(msgspec.Struct, tag="tick", array_like=True, frozen=True, forbid_unknown_fields=True):
    """A Tick of a later version, with one more field."""

    term: int
    more: str = ""


class New(msgspec.Struct, tag="new", array_like=True, frozen=True, forbid_unknown_fields=True):
    """A kind of proposal that only a later version has."""


def grown_form(monkeypatch: pytest.MonkeyPatch, *, whole: bool) -> versioned.Versioned[Grown | New]:
    table = {1: {**versioned._FIELDS[1], "Grown": 1}}
    monkeypatch.setattr(versioned, "_FIELDS", table)
    numbers = {FIRST: b"\x04", NEWEST: b"\x05"}
    return versioned.Versioned(Grown | New, numbers, proposals.ProposalCorrupt, whole=whole)


def test_an_older_version_is_written_without_the_fields_that_it_has_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    form = grown_form(monkeypatch, whole=True)
    data = form.encode(Grown(7), FIRST)
    assert data == proposals.encode(proposals.Tick(Term(7)))
    assert form.decode(data) == (Grown(7), FIRST)
    assert form.decode(form.encode(Grown(7, "x"), NEWEST)) == (Grown(7, "x"), NEWEST)


def test_what_an_older_version_cannot_express_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-VERSION-1."""
    form = grown_form(monkeypatch, whole=True)
    for value in (Grown(7, "x"), New()):
        with pytest.raises(NotReady) as refused:
            form.encode(value, FIRST)
        assert refused.value.metadata == {"cluster_version": "1", "needed": "2"}
    cut = grown_form(monkeypatch, whole=False).encode(Grown(7, "x"), FIRST)
    assert cut == proposals.encode(proposals.Tick(Term(7)))


def test_every_struct_of_the_first_version_is_there_and_has_only_grown() -> None:
    """What stands in the table is a promise to release 0.1.0."""
    found = {
        name: len(kind.__struct_fields__)
        for module in (store_commands, proposals, replies, states)
        for name, kind in vars(module).items()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    }
    for name, fields in versioned._FIELDS[FIRST].items():
        assert found[name] >= fields, name


def test_a_store_that_says_nothing_intelligible_knows_the_first_version_only() -> None:
    assert said({}) == ONLY_FIRST
    for text in ("", "2", "1-", "-2", "0-1", "1-2 ", "x-y", "1-99999999999999999999"):
        assert said({RANGE_LABEL: text}) == ONLY_FIRST, text
    assert said(KNOWN.labels()) == KNOWN
    assert ONLY_FIRST.labels() == {}


def test_nobody_is_refused_for_what_it_says_at_the_first_version() -> None:
    """A replica of the older program would take the heartbeat, and all have to do the same."""
    model = Model()
    model.start()
    beat = proposals.StoreHeartbeat(
        StoreId("new"),
        "",
        "new:1",
        "new:2",
        (proposals.DirectoryReport(Incarnation(77)),),
        5,
        1,
        labels={RANGE_LABEL: "5-9"},
    )
    assert isinstance(model.propose(beat), Applied)
    assert StoreId("new") in model.state.stores


def test_the_view_says_what_keeps_the_cluster_at_its_version() -> None:
    model = Model()
    model.start()
    view = cluster_view(model.state)
    assert (view.cluster_version, view.next_version) == (FIRST, NEWEST)
    assert view.holding_back == tuple(sorted(model.state.stores))
    after = cluster_view(raised().state)
    assert (after.cluster_version, after.next_version, after.holding_back) == (NEWEST, 0, ())


def test_a_store_says_what_its_data_directories_are_written_for() -> None:
    assert used(used_labels(FIRST)) == FIRST
    assert used_labels(FIRST) == {}, "a store of a cluster at the first version says nothing new"
    assert used(used_labels(NEWEST)) == NEWEST
    for word in ("", "x", "-1", "1" * 10):
        assert used({USED_LABEL: word}) == FIRST
