"""Quotas in shard 0: what a verb may set, that it is all or nothing, and what heartbeats carry."""

from __future__ import annotations

from typing import Any

import pytest
from logservice_wire.errors import NotReady, Reason

from logservice import bounds
from logservice.hakeeper import state
from logservice.hakeeper.commands import proposals, replies
from logservice.hakeeper.commands.quotas import QUOTA_NAMES, IdentityQuota
from logservice.hakeeper.commands.verbs import SetQuota
from logservice.hakeeper.stores import quotas
from logservice.hakeeper.wishes.quotas import apply_quota
from logservice.outcome import Applied, Rejected
from logservice.versions import KNOWN
from tests.hakeeper.beaten import beaten
from tests.hakeeper.model import Model
from tests.papers import uri

ME = uri("client", "me")


def at_version_2() -> state.State:
    return state.State(cluster_version=2)


def proposed(held: state.State, identity: str, *clear: str, **values: Any) -> Applied | Rejected:
    verb = SetQuota(IdentityQuota(identity, **values), clear)
    found = proposals.decode(proposals.encode(verb, 2))
    assert found == verb
    outcome = apply_quota(held, found)  # type: ignore[arg-type]
    assert isinstance(outcome, Applied | Rejected)
    return outcome


def test_values_are_set_and_cleared_one_by_one() -> None:
    held = at_version_2()
    made = [
        proposed(held, ME, requests_per_s=10, rpcs_max=5),
        proposed(held, ME, requests_per_s=10),
        proposed(held, "", bytes_per_s=0),
        proposed(held, ME, "requests_per_s", streams_max=2),
    ]
    assert [one.value for one in made if isinstance(one, Applied)] == [1, 1, 2, 3]
    assert quotas.rows(held) == (
        IdentityQuota("", bytes_per_s=0),
        IdentityQuota(ME, rpcs_max=5, streams_max=2),
    )
    loaded = state.load(state.save(held))
    assert (loaded.quotas, loaded.quotas_version) == (held.quotas, 3)
    proposed(held, ME, *QUOTA_NAMES)
    proposed(held, "", *QUOTA_NAMES)
    assert held.quotas == {}
    assert held.quotas_version == 5


EDGES = [
    ("requests_per_s", 1, bounds.QUOTA_REQUESTS_PER_S_MAX),
    ("bytes_per_s", bounds.QUOTA_BYTES_PER_S_MIN, bounds.QUOTA_BYTES_PER_S_MAX),
    ("rpcs_max", 1, bounds.QUOTA_COUNT_MAX),
    ("streams_max", 1, bounds.QUOTA_COUNT_MAX),
    ("connections_max", 1, bounds.QUOTA_COUNT_MAX),
    ("address_connections_max", bounds.QUOTA_ADDRESS_CONNECTIONS_MIN, bounds.QUOTA_COUNT_MAX),
]


@pytest.mark.parametrize(("name", "lowest", "highest"), EDGES)
def test_values_have_bounds(name: str, lowest: int, highest: int) -> None:
    """QUOTA_REQUESTS_PER_S_MAX, QUOTA_BYTES_PER_S_MIN, QUOTA_BYTES_PER_S_MAX, QUOTA_COUNT_MAX,
    QUOTA_ADDRESS_CONNECTIONS_MIN. A rate of 0 is no limit; a number of 0 would shut everybody out,
    and is refused.
    """
    held = at_version_2()
    for fits in (lowest, highest):
        assert isinstance(proposed(held, "", **{name: fits}), Applied)
    before = state.save(held)
    for wrong in {lowest - 1, highest + 1} - ({0} if name.endswith("_per_s") else set()):
        beside = "streams_max" if name == "rpcs_max" else "rpcs_max"
        outcome = proposed(held, "", **{beside: 77, name: wrong})
        assert isinstance(outcome, Rejected)
        assert (outcome.reason, outcome.metadata["field"]) == (Reason.INVALID_ARGUMENT, name)
        assert state.save(held) == before
    if name.endswith("_per_s"):
        assert isinstance(proposed(held, "", **{name: 0}), Applied)


def test_what_is_refused_changes_nothing() -> None:
    held = at_version_2()
    proposed(held, ME, rpcs_max=5)
    before = state.save(held)
    for outcome, field in (
        (proposed(held, "me", rpcs_max=1), "identity"),
        (proposed(held, uri("store", "s1"), rpcs_max=1), "identity"),
        (proposed(held, ME.removesuffix("me") + "*", rpcs_max=1), "identity"),
        (proposed(held, ME), "quota"),
        (proposed(held, ME, "rpcs_max", rpcs_max=1), "clear"),
        (proposed(held, ME, "everything"), "clear"),
        (proposed(held, ME, address_connections_max=5), "address_connections_max"),
    ):
        assert isinstance(outcome, Rejected)
        assert (outcome.reason, outcome.metadata["field"]) == (Reason.INVALID_ARGUMENT, field)
    assert state.save(held) == before


def test_so_many_identities_have_one() -> None:
    """QUOTA_IDENTITIES_MAX, at its edge; all of them fit an answer, with that of everybody."""
    held = at_version_2()
    name = "n" * 120
    for number in range(1, bounds.QUOTA_IDENTITIES_MAX):
        one = uri("client", f"{name}{number}", cluster="c" * 128)
        held.quotas[one] = IdentityQuota(one, *[2**40] * 6)
    assert isinstance(proposed(held, ME, rpcs_max=5), Applied)
    full = proposed(held, uri("client", "you"), rpcs_max=5)
    assert isinstance(full, Rejected)
    assert full.reason is Reason.BUSY
    assert isinstance(proposed(held, ME, rpcs_max=6), Applied)
    held.quotas[""] = IdentityQuota(rpcs_max=7)
    reply = beaten(held, 1, quotas_version=0)
    assert reply.quotas is not None
    assert len(reply.quotas) == bounds.QUOTA_IDENTITIES_MAX + 1
    assert len(replies.encode(reply)) < bounds.COMMAND_BYTES_MAX


def test_a_heartbeat_brings_them_once() -> None:
    held = at_version_2()
    assert beaten(held, 1, quotas_version=0).quotas is None
    proposed(held, ME, rpcs_max=5)
    reply = beaten(held, 2, quotas_version=0)
    assert (reply.quotas_version, reply.quotas) == (1, (IdentityQuota(ME, rpcs_max=5),))
    assert beaten(held, 3, quotas_version=1).quotas is None
    assert beaten(held, 4, quotas_version=99).quotas is not None


def test_they_need_cluster_version_2() -> None:
    """A store does not propose one before, and no replica applies one."""
    verb = SetQuota(IdentityQuota(ME, rpcs_max=5))
    with pytest.raises(NotReady):
        proposals.encode(verb, 1)
    model = Model(3)
    model.start()
    assert isinstance(model.propose_bytes(proposals.encode(verb, 2)), Rejected)
    assert model.state.quotas == {}
    newer = Model(3, versions=KNOWN)
    newer.start()
    assert isinstance(newer.propose(verb), Applied)
    assert newer.state.feed.ring[-1].text == f"quota of {ME} is changed"
