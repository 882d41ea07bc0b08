"""The access list: what a grant covers, and that nothing else is covered."""

from __future__ import annotations

import pytest
from logservice_wire.errors import InvalidArgument

from logservice import bounds
from logservice.access import (
    ALL,
    AccessList,
    Grant,
    check_denied,
    check_grantee,
    checked_roles,
    denied_roles,
)
from logservice.ids import HAKEEPER_SHARD, ShardId
from tests.papers import uri

ME = uri("client", "me")


def roles(scope: str, shard: int, name: str | None = None, *, who: str = ME) -> bool:
    listed = AccessList(1, [Grant(ME, scope, ("read",))])
    return "read" in listed.roles(who, ShardId(shard), name)


@pytest.mark.parametrize(
    ("scope", "shard", "name", "covered"),
    [
        ("*", 7, None, True),
        ("*", HAKEEPER_SHARD, None, True),
        ("cluster", HAKEEPER_SHARD, None, True),
        ("cluster", 7, "cluster", False),
        ("shard/7", 7, None, True),
        ("shard/7", 77, None, False),
        ("shard/77", 7, None, False),
        ("shard/7", HAKEEPER_SHARD, None, False),
        ("name/wal", 7, "wal", True),
        ("name/wal", 7, "wal-1", False),
        ("name/wal", 7, None, False),
        ("name/wal-*", 7, "wal-1", True),
        ("name/wal-*", 7, "wal-", True),
        ("name/wal-*", 7, "wal", False),
        ("name/wal-*", 7, "WAL-1", False),
        ("name/*", 7, "x", True),
        ("name/*", 7, None, False),
        ("name/*", HAKEEPER_SHARD, "x", False),
    ],
)
def test_scopes(scope: str, shard: int, name: str | None, covered: bool) -> None:
    check_grantee(ME, scope)
    assert roles(scope, shard, name) is covered


def test_grants_add_up_and_are_nobody_elses() -> None:
    listed = AccessList(
        3, [Grant(ME, "shard/1", ("append",)), Grant(ME, "name/w*", ("read", "truncate"))]
    )
    assert listed.roles(ME, ShardId(1), "wal") == {"append", "read", "truncate"}
    assert listed.roles(ME, ShardId(2), "wal") == {"read", "truncate"}
    assert listed.roles(ME + "x", ShardId(1), "wal") == frozenset()
    assert listed.roles("", ShardId(1), "wal") == frozenset()
    assert AccessList().roles(ME, ShardId(1), "wal") == frozenset()


@pytest.mark.parametrize(
    "scope",
    [
        "",
        "**",
        "all",
        "shard/",
        "shard/0",
        "shard/07",
        "shard/-1",
        "shard/1/",
        "shard/*",
        "name/",
        "name/a*b",
        "name/a**",
        "name/a\n",
        "Cluster",
        "cluster ",
        "shards/1",
        "shard/1\n",
    ],
)
def test_scopes_that_could_never_take_effect(scope: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        check_grantee(ME, scope)
    assert caught.value.metadata["field"] == "scope"


@pytest.mark.parametrize("identity", ["", "*", "me", uri("store", "s1"), ME + "*", ME.upper()])
def test_only_clients_are_granted_anything(identity: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        check_grantee(identity, "*")
    assert caught.value.metadata["field"] == "identity"


def test_roles() -> None:
    assert checked_roles(["read", "append", "read"]) == ("append", "read")
    for wrong in ("", "READ", "write", "replica"):
        with pytest.raises(InvalidArgument):
            checked_roles(["read", wrong])


def test_a_name_alone_is_covered_by_names_and_by_everything() -> None:
    scopes = ("name/wal", "name/log-*", "*", "cluster", "shard/1")
    found = AccessList(1, [Grant(scope, scope, ("read",)) for scope in scopes])
    covered = {
        (scope, name)
        for scope in scopes
        for name in ("wal", "log-1", "1")
        if found.roles_by_name(scope, name)
    }
    everything = {("*", "wal"), ("*", "log-1"), ("*", "1")}
    assert covered == {("name/wal", "wal"), ("name/log-*", "log-1"), *everything}


def held(*denials: Grant, shard: int = 7, name: str | None = "wal-1", who: str = ME) -> set[str]:
    listed = AccessList(1, [Grant(who, "*", ("admin", "append", "read"))], denials)
    return set(listed.roles(who, ShardId(shard), name))


def test_a_denial_takes_what_grants_give() -> None:
    """INV-ACCESS-3."""
    assert held() == {"admin", "append", "read"}
    assert held(Grant(ME, "*", ("read",))) == {"admin", "append"}
    assert held(Grant(ME, "shard/7", ("read",)), Grant(ME, "name/w*", ("append",))) == {"admin"}
    assert held(Grant(ME, "shard/8", (ALL,))) == {"admin", "append", "read"}
    assert held(Grant(ME, "shard/7", (ALL,))) == set()
    # The cluster is no shard, and no shard is the cluster.
    assert held(Grant(ME, "cluster", (ALL,))) == {"admin", "append", "read"}
    assert held(Grant(ME, "cluster", (ALL,)), shard=HAKEEPER_SHARD, name=None) == set()
    assert held(Grant(ME, "name/*", (ALL,)), shard=HAKEEPER_SHARD, name=None) != set()
    # All roles are also those that nobody knows yet.
    later = AccessList(1, [Grant(ME, "*", ("levitate",))], [Grant(ME, "*", (ALL,))])
    assert later.roles(ME, ShardId(1), "") == frozenset()


@pytest.mark.parametrize(
    ("granted", "denied", "left"),
    [
        ("*", "*", False),
        ("shard/7", "*", False),
        ("shard/7", "shard/7", False),
        ("shard/7", "shard/77", True),
        ("*", "name/*", True),
        ("name/wal-1", "name/wal-*", False),
        ("name/wal-*", "name/wal-*", False),
        ("name/wal-1*", "name/wal-*", False),
        ("name/wal*", "name/wal-*", True),
        ("name/wal-1", "name/*", False),
        ("cluster", "name/*", True),
        ("name/wal-1", "name/wal", True),
    ],
)
def test_who_is_denied_everything_that_it_is_granted_has_no_role(
    granted: str, denied: str, left: bool
) -> None:
    """The admin port lets in whoever has some role over something."""
    listed = AccessList(1, [Grant(ME, granted, ("read",))], [Grant(ME, denied, (ALL,))])
    assert listed.has_some_role(ME) is left


def test_a_denial_by_name_covers_what_has_no_known_name() -> None:
    """A grant by name does not, so that neither opens a door."""
    rule = Grant(ME, "name/w*", (ALL,))
    assert held(rule, name=None) == set()
    assert held(rule, name="other") == {"admin", "append", "read"}
    listed = AccessList(1, [Grant(ME, "*", ("read",))], [rule])
    assert listed.needs_name(ME)
    assert not listed.needs_name(ME + "x")
    assert listed.roles_by_name(ME, "wal") == frozenset()
    assert listed.roles_by_name(ME, "other") == {"read"}


@pytest.mark.parametrize(
    ("denied", "who", "covered"),
    [
        ("etl-*", "etl-1", True),
        ("etl-*", "etl-", True),
        ("etl-*", "etl", False),
        ("etl-*", "xetl-1", False),
        ("etl-*", "ETL-1", False),
        ("*", "e", True),
        ("etl", "etl", True),
        ("etl", "etl-1", False),
        ("etl*", "etl", True),
    ],
)
def test_identities_that_begin_so(denied: str, who: str, covered: bool) -> None:
    named = uri("client", "x").removesuffix("x") + denied
    check_denied(named, "*")
    other = Grant(uri("client", "a-much-longer-name-than-any") + "*", "*", (ALL,))
    assert held(Grant(named, "*", (ALL,)), other, who=uri("client", who)) == (
        set() if covered else {"admin", "append", "read"}
    )
    listed = AccessList(1, (), [Grant(named, "*", ("read",))])
    assert bool(listed.denying(uri("client", who), "read", ShardId(1), "n")) is covered


@pytest.mark.parametrize(
    "identity",
    [
        "*",
        "spiffe://*",
        uri("store", "s1"),
        uri("store", "s1").removesuffix("s1") + "*",
        uri("client", "x").removesuffix("client/x") + "*",
        uri("client", "x") + "**",
        uri("client", "x").replace("/c/", "/*/"),
        uri("client", "x").removesuffix("x") + ".*",
    ],
)
def test_no_denial_is_about_stores_or_about_nobody(identity: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        check_denied(identity, "*")
    assert caught.value.metadata["field"] == "identity"


def test_roles_of_a_denial() -> None:
    assert denied_roles(["read", ALL]) == (ALL,)
    assert denied_roles(["read", "append", "read"]) == ("append", "read")
    assert denied_roles([]) == ()
    with pytest.raises(InvalidArgument):
        denied_roles(["everything"])
    with pytest.raises(InvalidArgument):
        checked_roles([ALL])


def test_a_list_of_the_largest_size_costs_a_look_up_for_each_length() -> None:
    """ACCESS_DENIALS_MAX prefixes of three lengths; nobody else is covered by any."""
    start = uri("client", "x").removesuffix("x")
    rules = [
        Grant(f"{start}{number:0{3 + number % 3}}-*", "*", (ALL,))
        for number in range(bounds.ACCESS_DENIALS_MAX)
    ]
    listed = AccessList(1, [Grant(ME, "*", ("read",))], rules)
    assert len(listed._lengths) <= 4
    assert listed.roles(ME, ShardId(1), "n") == {"read"}
    assert listed.denying(f"{start}0001-x", "read", ShardId(1), "n") == [rules[1]]


@pytest.mark.parametrize(
    ("grants", "denials", "some"),
    [
        ([], [], False),
        ([("shard/7", ("hold",))], [], True),
        ([("shard/7", ())], [], False),
        ([("shard/7", ("hold",))], [("*", (ALL,))], False),
        ([("shard/7", ("hold",))], [("shard/7", ("hold", "read"))], False),
        ([("shard/7", ("hold", "append"))], [("shard/7", ("hold",))], True),
        ([("shard/7", ("hold",))], [("shard/8", (ALL,))], True),
        ([("*", ("read",))], [("shard/8", (ALL,))], True),
        ([("shard/7", ("hold",)), ("cluster", ("read",))], [("shard/7", (ALL,))], True),
    ],
)
def test_some_role_over_something(
    grants: list[tuple[str, tuple[str, ...]]],
    denials: list[tuple[str, tuple[str, ...]]],
    some: bool,
) -> None:
    """Of the identity itself; a denial may be about all that begin so."""
    for called in (ME, ME[:-1] + "*"):
        listed = AccessList(
            1,
            [Grant(ME, scope, names) for scope, names in grants],
            [Grant(called, scope, names) for scope, names in denials],
        )
        assert listed.has_some_role(ME) is some
        assert not listed.has_some_role(uri("client", "other"))
