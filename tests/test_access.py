"""The access list: what a grant covers, and that nothing else is covered."""

from __future__ import annotations

import pytest
from logservice_wire.errors import InvalidArgument

from logservice.access import AccessList, Grant, check_grantee, checked_roles
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
