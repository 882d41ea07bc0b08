"""The access list in shard 0: changes, snapshots, and what heartbeats carry."""

from __future__ import annotations

import pytest
from logservice_wire.errors import NotReady, Reason
from logservice_wire.roles import Role

from logservice import bounds
from logservice.hakeeper import state
from logservice.hakeeper.answers import queries, views
from logservice.hakeeper.commands import proposals, replies
from logservice.hakeeper.commands.proposals import ChangeAccess
from logservice.hakeeper.stores import access
from logservice.ids import StoreId
from logservice.outcome import Applied, Rejected
from logservice.versions import KNOWN
from tests.hakeeper.beaten import beaten, next_beat
from tests.hakeeper.model import HEARTBEAT_TICKS, Model
from tests.papers import uri

ME, YOU = uri("client", "me"), uri("client", "you")


def changed(held: state.State, change: ChangeAccess) -> int:
    outcome = access.apply_change(held, proposals.decode(proposals.encode(change)))  # type: ignore[arg-type]
    assert isinstance(outcome, Applied)
    return outcome.value


def table(held: state.State) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(one.identity, one.scope, one.roles) for one in access.grants(held)]


def test_grant_and_revoke() -> None:
    held = state.State()
    assert changed(held, ChangeAccess(YOU, "*", ("read",))) == 1
    assert changed(held, ChangeAccess(ME, "shard/1", ("read", "append"))) == 2
    assert changed(held, ChangeAccess(ME, "cluster", ("admin",))) == 3
    assert table(held) == [
        (ME, "cluster", ("admin",)),
        (ME, "shard/1", ("append", "read")),
        (YOU, "*", ("read",)),
    ]
    assert changed(held, ChangeAccess(ME, "shard/1", ("truncate",), ("read",))) == 4
    assert changed(held, ChangeAccess(ME, "shard/1", (), ("append", "truncate"))) == 5
    assert changed(held, ChangeAccess(ME, "cluster", (), ("admin",))) == 6
    assert table(held) == [(YOU, "*", ("read",))]
    assert set(held.access) == {YOU}


def test_the_same_change_twice_is_one() -> None:
    held = state.State()
    grant = ChangeAccess(ME, "*", ("read",))
    assert changed(held, grant) == changed(held, grant) == 1
    revoke = ChangeAccess(ME, "*", (), ("read",))
    assert changed(held, revoke) == changed(held, revoke) == 2
    assert table(held) == []


def test_refused_changes_change_nothing() -> None:
    held = state.State()
    changed(held, ChangeAccess(ME, "*", ("read",)))
    before = state.save(held)
    for wrong, words in (
        (ChangeAccess("me", "*", ("read",)), "expected spiffe://"),
        (ChangeAccess(uri("store", "s1"), "*", ("read",)), "expected spiffe://"),
        (ChangeAccess(ME, "everything", ("read",)), "expected *, cluster"),
        (ChangeAccess(ME, "*", ("write",)), "roles are: "),
        (ChangeAccess(ME, "*", (), ("write",)), "roles are: "),
        (ChangeAccess(ME, "*"), "none is named"),
    ):
        outcome = access.apply_change(held, wrong)
        assert isinstance(outcome, Rejected)
        assert outcome.reason is Reason.INVALID_ARGUMENT
        assert words in outcome.metadata["why"]
        assert state.save(held) == before


def test_the_table_is_bounded() -> None:
    held = state.State()
    for number in range(1, bounds.ACCESS_GRANTS_MAX - 9):
        held.access[uri("client", str(number))] = {"*": ("read",)}
    for number in range(1, 11):
        changed(held, ChangeAccess(ME, f"shard/{number}", ("read",)))
    outcome = access.apply_change(held, ChangeAccess(YOU, "*", ("read",)))
    assert isinstance(outcome, Rejected)
    assert outcome.reason is Reason.BUSY
    # Existing grants can still be changed, and revoked.
    changed(held, ChangeAccess(ME, "shard/1", ("append",)))
    changed(held, ChangeAccess(ME, "shard/2", (), ("read",)))
    changed(held, ChangeAccess(YOU, "*", ("read",)))


def test_snapshots_carry_it_whatever_the_order_was() -> None:
    one, other = state.State(), state.State()
    changes = [
        ChangeAccess(who, where, ("read",)) for who in (ME, YOU) for where in ("*", "shard/1")
    ]
    for change in changes:
        changed(one, change)
    for change in reversed(changes):
        changed(other, change)
    assert state.save(one) == state.save(other)
    loaded = state.load(state.save(one))
    assert (loaded.access, loaded.access_version) == (one.access, 4)


def test_a_heartbeat_brings_it_once() -> None:
    held = state.State()
    assert beaten(held, 1, access_version=0).access is None
    changed(held, ChangeAccess(ME, "*", ("read",)))
    reply = beaten(held, 2, access_version=0)
    assert reply.access_version == 1
    assert reply.access is not None
    assert [one.identity for one in reply.access] == [ME]
    assert beaten(held, 3, access_version=1).access is None
    # A store that has a list of a version unknown here gets this one.
    assert beaten(held, 4, access_version=99).access is not None


def test_the_largest_list_fits_an_answer() -> None:
    held = state.State()
    name = "n" * 128
    scopes = {f"name/{number:0128}": ("read",) for number in range(bounds.ACCESS_GRANTS_MAX)}
    held.access[uri("client", name, cluster=name)] = scopes
    held.access_version = 1
    assert len(replies.encode(beaten(held, 1, access_version=0))) < bounds.COMMAND_BYTES_MAX


def test_texts_of_the_largest_size_pass_and_one_byte_more_does_not() -> None:
    longest = "i" * bounds.ACCESS_TEXT_BYTES_MAX
    for fits in (ChangeAccess(longest, "*", ("read",)), ChangeAccess(ME, longest, ("read",))):
        assert proposals.decode(proposals.encode(fits)) == fits
    for identity, scope in ((longest + "i", "*"), (ME, longest + "i")):
        with pytest.raises(proposals.ProposalCorrupt):
            proposals.decode(proposals.encode(ChangeAccess(identity, scope, ("read",))))


def test_stores_say_which_list_is_in_force_there() -> None:
    """From cluster version 2 on; before, nobody knows."""
    model = Model(3, versions=KNOWN)
    model.start()
    found = model.rsm.lookup(queries.GetAccess())
    assert isinstance(found, views.AccessView)
    assert {(one.store_id, one.version) for one in found.stores} == {
        ("s1", 0),
        ("s2", 0),
        ("s3", 0),
    }
    store = model.state.stores[StoreId("s2")]
    model.propose(next_beat(store, access_version=7))
    found = model.rsm.lookup(queries.GetAccess())
    assert isinstance(found, views.AccessView)
    assert {one.store_id: one.version for one in found.stores} == {"s1": 0, "s2": 7, "s3": 0}
    assert max(one.ticks_since_heartbeat for one in found.stores) < 2 * HEARTBEAT_TICKS
    older = Model(3)
    older.start()
    found = older.rsm.lookup(queries.GetAccess())
    assert isinstance(found, views.AccessView)
    assert found.stores == ()


def test_the_role_of_readers_holds_needs_cluster_version_2() -> None:
    """Programs of version 1 do not know it."""
    held = state.State()
    held.cluster_version = 1
    for change in (ChangeAccess(ME, "*", ("hold", "read")), ChangeAccess(ME, "*", (), ("hold",))):
        outcome = access.apply_change(held, change)
        assert isinstance(outcome, Rejected)
        assert outcome.reason is Reason.INVALID_ARGUMENT
    assert table(held) == []
    held.cluster_version = 2
    assert changed(held, ChangeAccess(ME, "*", ("hold", "read"))) == 1
    assert table(held) == [(ME, "*", ("hold", "read"))]


def denied_table(held: state.State) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(one.identity, one.scope, one.roles) for one in access.denials(held)]


def at_version_2() -> state.State:
    return state.State(cluster_version=2)


def proposed(held: state.State, change: ChangeAccess) -> Applied | Rejected:
    found = proposals.decode(proposals.encode(change, 2))
    outcome = access.apply_change(held, found)  # type: ignore[arg-type]
    assert isinstance(outcome, Applied | Rejected)
    return outcome


EVERYBODY = uri("client", "x").removesuffix("x") + "*"


def test_denials_are_a_table_of_their_own() -> None:
    held = at_version_2()
    versions = [
        proposed(held, change)
        for change in (
            ChangeAccess(ME, "*", ("read",)),
            ChangeAccess(ME, "*", deny=("read",)),
            ChangeAccess(ME, "*", deny=("read",)),
            ChangeAccess(ME, "*", deny=("append",)),
            ChangeAccess(EVERYBODY, "cluster", deny=("all", "read")),
        )
    ]
    assert [one.value for one in versions if isinstance(one, Applied)] == [1, 2, 2, 3, 4]
    assert table(held) == [(ME, "*", ("read",))]
    assert denied_table(held) == [
        (EVERYBODY, "cluster", ("all",)),
        (ME, "*", ("append", "read")),
    ]
    loaded = state.load(state.save(held))
    assert (loaded.denied, loaded.access_version) == (held.denied, 4)
    proposed(held, ChangeAccess(ME, "*", undeny=("read",)))
    proposed(held, ChangeAccess(ME, "*", deny=("all",)))
    assert denied_table(held)[1:] == [(ME, "*", ("all",))]
    part = proposed(held, ChangeAccess(ME, "*", undeny=("read",)))
    assert isinstance(part, Rejected)
    assert "undeny all" in part.metadata["why"]
    proposed(held, ChangeAccess(ME, "*", undeny=("all",)))
    proposed(held, ChangeAccess(EVERYBODY, "cluster", undeny=("all",)))
    assert denied_table(held) == []
    assert held.denied == {}
    assert table(held) == [(ME, "*", ("read",))]


def test_refused_denials_change_nothing() -> None:
    held = at_version_2()
    proposed(held, ChangeAccess(ME, "*", deny=("read",)))
    before = state.save(held)
    for wrong, words in (
        (ChangeAccess("me", "*", deny=("read",)), "client/<prefix>*"),
        (ChangeAccess(uri("store", "s1"), "*", deny=("all",)), "expected spiffe://"),
        (ChangeAccess(ME, "everything", deny=("read",)), "expected *, cluster"),
        (ChangeAccess(ME, "*", deny=("write",)), "roles are: "),
        (ChangeAccess(ME, "*", undeny=("write",)), "roles are: "),
        (ChangeAccess(ME, "*", ("read",), deny=("read",)), "of grants or of denials"),
        (ChangeAccess(EVERYBODY, "*", ("read",)), "expected spiffe://"),
        (ChangeAccess(ME, "*", ("all",)), "roles are: "),
    ):
        outcome = proposed(held, wrong)
        assert isinstance(outcome, Rejected)
        assert outcome.reason is Reason.INVALID_ARGUMENT
        assert words in outcome.metadata["why"]
        assert state.save(held) == before


def test_the_table_of_denials_is_bounded() -> None:
    """ACCESS_DENIALS_MAX, at its edge; grants are counted apart."""
    held = at_version_2()
    for number in range(1, bounds.ACCESS_DENIALS_MAX):
        held.denied[uri("client", str(number))] = {"*": ("read",)}
    assert isinstance(proposed(held, ChangeAccess(ME, "*", deny=("read",))), Applied)
    full = proposed(held, ChangeAccess(YOU, "*", deny=("read",)))
    assert isinstance(full, Rejected)
    assert full.reason is Reason.BUSY
    assert isinstance(proposed(held, ChangeAccess(YOU, "*", ("read",))), Applied)
    assert isinstance(proposed(held, ChangeAccess(ME, "*", deny=("all",))), Applied)
    assert isinstance(proposed(held, ChangeAccess(ME, "*", undeny=("all",))), Applied)
    assert isinstance(proposed(held, ChangeAccess(YOU, "*", deny=("read",))), Applied)


def test_heartbeats_bring_denials_with_the_grants() -> None:
    held = at_version_2()
    proposed(held, ChangeAccess(ME, "*", ("read",)))
    proposed(held, ChangeAccess(ME, "name/log-1", deny=("all",)))
    reply = beaten(held, 1, access_version=1)
    assert reply.access is not None
    assert [one.scope for one in reply.denials] == ["name/log-1"]
    reply = beaten(held, 2, access_version=2)
    assert (reply.access, reply.denials) == (None, ())


def test_the_largest_list_with_denials_fits_an_answer_between_stores() -> None:
    """Every text of the largest size, in characters of four bytes where a scope may have them."""
    held = at_version_2()
    name, wide = "n" * 128, "\U00010348" * 120
    one = uri("client", name, cluster=name)
    roles = tuple(sorted(Role))
    held.access[one] = {f"name/{wide}{n:04}": roles for n in range(bounds.ACCESS_GRANTS_MAX)}
    held.denied[one] = {f"name/{wide}{n:04}": roles for n in range(bounds.ACCESS_DENIALS_MAX)}
    held.access_version = 1
    assert len(replies.encode(beaten(held, 1, access_version=0))) < bounds.PEER_FRAME_BYTES_MAX // 8


def test_denials_need_cluster_version_2() -> None:
    """A store does not propose one before, and no replica applies one."""
    change = ChangeAccess(ME, "*", deny=("all",))
    with pytest.raises(NotReady) as caught:
        proposals.encode(change, 1)
    assert caught.value.metadata["needed"] == "2"
    model = Model(3)
    model.start()
    outcome = model.propose_bytes(proposals.encode(change, 2))
    assert isinstance(outcome, Rejected)
    assert model.state.denied == {}


@pytest.mark.parametrize("change", ["grant", "deny"])
def test_a_rule_is_about_a_log_that_there_is(change: str) -> None:
    """Refused from version 2 on, and changes nothing; what is there may always be taken away."""
    took_back = {"grant": "revoke", "deny": "undeny"}[change]
    rule = ChangeAccess(ME, "shard/99", **{change: ("read",)})
    held = state.State(cluster_version=2)
    before = held.access_version
    refused = access.apply_change(held, rule)
    assert isinstance(refused, Rejected)
    assert refused.metadata["field"] == "scope"
    assert "there is no shard 99" in refused.metadata["why"]
    assert held.access_version == before
    assert not held.access
    assert not held.denied
    assert isinstance(access.apply_change(held, ChangeAccess(ME, "name/later", ("read",))), Applied)
    old = state.State(cluster_version=1)
    assert isinstance(access.apply_change(old, rule), Applied)
    old.cluster_version = 2
    assert isinstance(access.apply_change(old, rule), Applied), "it is there already"
    back = ChangeAccess(ME, "shard/99", **{took_back: ("read",)})
    assert isinstance(access.apply_change(old, back), Applied)
    assert not old.access
    assert not old.denied
