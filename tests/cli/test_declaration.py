"""The file that declares a cluster: its strict keys, and the plan that follows from it."""

from __future__ import annotations

import msgspec
import pytest
from logservice_wire.errors import InvalidArgument, TooLarge

from logservice.bounds import DECLARED_BYTES_MAX
from logservice.cli.declared.declaration import POLICY, RATES, Log, Settings, parse
from logservice.cli.declared.export import exported
from logservice.cli.declared.plan import Kind, plan
from logservice.cli.declared.present import Present, PresentLog, settings_of
from logservice.config import ConfigError

ONE = "[[grants]]\nidentity = 'spiffe://logservice.internal/cluster/c/client/db'\n"
WHO = "spiffe://logservice.internal/cluster/c/client/db"
OPS = "spiffe://logservice.internal/cluster/c/client/ops"

VALUES: dict[str, object] = {
    "replicas": 3,
    "witnesses": 0,
    "protected": False,
    "zone_rule": "best-effort",
    "leader_zone": "",
    "learners": {},
    "max_bytes_per_s": 0,
    "max_records_per_s": 0,
    "weight": 100,
    "retention_age_s": 0,
    "retention_bytes": 0,
    "retention_records": 0,
    "labels": {},
}

SETTINGS: dict[str, object] = {
    "store_timeout_s": 300.0,
    "default_replicas": 3,
    "joining": "automatic",
    "replica_balance": "on",
    "leader_balance": "on",
    "replace_stuck": "on",
    "catch_up_bytes_per_s": 0,
    "tail_read_bytes_per_s": 2 << 20,
    "catch_up_read_bytes_per_s": 0,
}


def log(shard: int, name: str, state: str = "open", **values: object) -> PresentLog:
    return PresentLog(id=shard, name=name, state=state, values={**VALUES, **values})


def present(
    *logs: PresentLog, grants: dict[tuple[str, str], tuple[str, ...]] | None = None
) -> Present:
    return Present(
        cluster_id="c",
        cluster_version=2,
        stores=3,
        settings=SETTINGS,
        logs={one.id: one for one in logs},
        grants=grants or {},
    )


def planned(text: str, there: Present, *, prune: bool = False):
    return plan(parse(text.encode()), there, prune=prune)


@pytest.mark.parametrize(
    ("text", "field", "problem"),
    [
        ("[logs.a]\nreplica = 3", "logs.a.replica", "unknown key"),
        ("[logs.'a/b']\nretention_age_s = '7d'", "logs.a/b.retention_age_s", "got '7d'"),
        ("[logs.a]\nreplicas = 4", "logs.a.replicas", "odd"),
        ("[logs.a]\nreplicas = 11", "logs.a.replicas", "11"),
        ("[logs.a]\nlabels = { x = 1 }", "logs.a.labels[...]", "{'x': 1}"),
        ("[logs.a]\nwitnesses = 1", "logs.a.waive_g1", "true"),
        ("[logs.'']\nreplicas = 3", "logs", "a name of"),
        ('[logs."a\\u001b"]\nreplicas = 3', "logs", "can be shown"),
        ("[logs.a]\nid = 1\n[logs.b]\nid = 1", "logs.b.id", "logs.a"),
        ("[logs.hakeeper]\nreplicas = 3", "logs.hakeeper", "HAKeeper's own"),
        ("[cluster]\nstore_timeout_s = 77.77", "cluster.store_timeout_s", "tenths"),
        ("[cluster]\njoin = 'by-verb'", "cluster.join", "unknown key"),
        ("[cluster]\njoining = 'never'", "cluster.joining", "never"),
        ("[clusters]", "clusters", "unknown key"),
        ("[[grants]]\nscope = '*'\nroles = ['read']", "grants[0].identity", "missing"),
        (f"{ONE}scope = '*'\nroles = ['rea']", "grants[0].roles[0]", "rea"),
        (f"{ONE}scope = 'x'\nroles = ['read']", "grants[0].scope", "name/"),
        ("[[grants]]\nidentity='x'\nscope='*'\nroles=['read']", "grants[0].identity", "spiffe"),
        (f"{ONE}scope = '*'\nroles = []", "grants[0].roles", "length"),
        (f"{ONE}scope = '*'\nroles = ['read']\n" * 2, "grants[1]", "grants[0]"),
        ("[[denials]]\nidentity='x'\nscope='*'\nroles=['all']", "denials[0].identity", "prefix"),
        ("[[quotas]]\nstreams_max = 1\n" * 2, "quotas[1]", "quotas[0]"),
        ("[[quotas]]\nstreams = 1", "quotas[0].streams", "unknown key"),
        ("x = ", "", "not TOML"),
        ("x = " + "[" * 20_000, "", "not TOML"),
    ],
)
def test_what_is_wrong_is_refused_with_its_path(text: str, field: str, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(text.encode())
    assert refused.value.metadata["field"] == field
    assert problem in refused.value.message


def test_a_store_timeout_of_any_whole_ticks() -> None:
    for ticks in (1, 3, 7, 777, 863_999, 864_000):
        parse(f"[cluster]\nstore_timeout_s = {ticks / 10}".encode())


def test_a_file_has_a_largest_size() -> None:
    parse(b"#" * DECLARED_BYTES_MAX)
    with pytest.raises(TooLarge):
        parse(b"#" * (DECLARED_BYTES_MAX + 1))


def test_the_keys_are_those_that_the_cluster_has() -> None:
    from logservice_wire.v1 import hakeeper_pb2

    assert set(settings_of(hakeeper_pb2.Settings())) == set(Settings.__struct_fields__)
    assert {one.name for one in hakeeper_pb2.Settings.DESCRIPTOR.fields} == (
        set(Settings.__struct_fields__) - {"store_timeout_s"} | {"store_timeout_ms"}
    )
    assert {one.name for one in hakeeper_pb2.ShardPolicy.DESCRIPTOR.fields} == set(POLICY)
    assert set(Log.__struct_fields__) == {*VALUES, "id", "waive_g1"}
    assert set(RATES) < set(Settings.__struct_fields__)


def test_nothing_declared_changes_nothing() -> None:
    found = planned("", present(log(1, "a")))
    assert (found.changes, found.impossible) == ([], [])
    assert found.notes == ["not in the file, and stays: 1 log: a"]


def test_the_order_is_settings_new_logs_changes_grants_and_administration_last() -> None:
    text = f"""
[cluster]
default_replicas = 5
[logs.b]
weight = 200
[logs.new]
replicas = 3
labels = {{ team = "x" }}
[[grants]]
identity = "{WHO}"
scope = "name/new"
roles = ["read", "append"]
"""
    grants = {
        (OPS, "*"): ("admin",),
        (OPS, "cluster"): ("admin", "read"),
        (WHO, "name/new"): ("read", "truncate"),
        (WHO, "shard/1"): ("read",),
    }
    found = planned(text, present(log(1, "b"), grants=grants), prune=True)
    assert [(one.verb, one.kind, one.name, one.scope) for one in found.changes] == [
        ("change", Kind.SETTINGS, "", ""),
        ("add", Kind.LOG, "new", ""),
        ("change", Kind.LOG, "b", ""),
        ("change", Kind.GRANT, WHO, "name/new"),
        ("change", Kind.GRANT, WHO, "name/new"),
        ("remove", Kind.GRANT, WHO, "shard/1"),
        ("remove", Kind.GRANT, OPS, "*"),
        ("remove", Kind.GRANT, OPS, "cluster"),
    ]
    assert found.changes[0].fields == {
        "default_replicas": (3, 5),
        "tail_read_bytes_per_s": (2 << 20, 0),
    }
    assert found.changes[3].fields == {
        "roles": (["read", "truncate"], ["append", "read", "truncate"])
    }
    assert found.changes[4].fields == {
        "roles": (["append", "read", "truncate"], ["append", "read"])
    }


def test_without_prune_nobody_loses_anything() -> None:
    """INV-DECLARED-1"""
    text = (
        f"cluster.default_replicas = 3\ngrants = [{{identity='{WHO}', scope='*', roles=['read']}}]"
    )
    grants = {(WHO, "*"): ("admin", "read"), (OPS, "*"): ("admin",)}
    there = present(log(1, "a"), grants=grants)
    found = planned(text, there)
    assert found.changes == []
    assert any("stays without --prune: 2 grants" in note for note in found.notes)
    taken = planned(text, there, prune=True).changes
    assert {one.kind for one in taken} == {Kind.SETTINGS, Kind.GRANT}
    with pytest.raises(InvalidArgument, match="grants"):
        planned("", there, prune=True)


def test_what_cannot_be_done_to_a_log_is_said_before_anything_is_done() -> None:
    there = present(log(1, "a"), log(2, "w", witnesses=1), log(3, "done", state="closed"))
    text = """
[logs.a]
witnesses = 1
waive_g1 = true
[logs.w]
replicas = 5
[logs.done]
id = 4
[logs.new]
replicas = 9
"""
    found = planned(text, there)
    assert [one.partition(":")[0] for one in found.impossible] == ["logs.a", "logs.w", "logs.done"]
    assert [one.name for one in found.changes] == ["new"]
    assert found.notes[0] == "log new shall have 9 replicas, and 3 stores are alive"


def test_denials_and_quotas_have_their_own_order_and_their_own_prune() -> None:
    text = f"""
grants = []
[[denials]]
identity = "{OPS}"
scope = "cluster"
roles = ["all"]
[[denials]]
identity = "{WHO}*"
scope = "name/a"
roles = ["read"]
[[quotas]]
identity = "{WHO}"
streams_max = 7
[[quotas]]
requests_per_s = 100
"""
    there = msgspec.structs.replace(
        present(log(1, "a"), grants={(WHO, "name/a"): ("read",)}),
        denials={(OPS, "*"): ("all",), (f"{WHO}*", "name/a"): ("append", "truncate")},
        quotas={"": {"requests_per_s": 5, "rpcs_max": 9}, OPS: {"streams_max": 1}},
    )
    kept = planned(text, there)
    assert [(one.kind.value, one.verb, one.name) for one in kept.changes] == [
        ("quota", "add", WHO),
        ("quota", "change", ""),
        ("denial", "change", f"{WHO}*"),
        ("denial", "add", OPS),
    ]
    assert kept.changes[1].fields == {"requests_per_s": (5, 100)}
    assert kept.changes[2].fields == {
        "roles": (["append", "truncate"], ["append", "read", "truncate"])
    }
    assert [note.partition(":")[0] for note in kept.notes] == [
        "not in the file, and stays",
        "not in the file, and stays without --prune",
        "not in the file, and stays without --prune",
        "not in the file, and stays without --prune",
    ]
    found = planned(text, there, prune=True)
    assert [(one.kind.value, one.verb, one.name, one.scope) for one in found.changes] == [
        ("quota", "add", WHO, ""),
        ("quota", "change", "", ""),
        ("quota", "remove", OPS, ""),
        ("denial", "change", f"{WHO}*", "name/a"),
        ("grant", "remove", WHO, "name/a"),
        ("denial", "change", f"{WHO}*", "name/a"),
        ("denial", "remove", OPS, "*"),
        ("denial", "add", OPS, "cluster"),
    ]
    assert found.changes[1].fields == {"requests_per_s": (5, 100), "rpcs_max": (9, None)}
    wider = planned(f"denials = [{{identity='{OPS}', scope='*', roles=['read']}}]", there)
    assert wider.changes == [], "what is denied already denies more"


def test_an_id_says_which_log_is_meant() -> None:
    found = planned("[logs.orders]\nid = 1", present(log(1, "old")))
    [change] = found.changes
    assert (change.verb, change.shard, change.fields) == ("change", 1, {"name": ("old", "orders")})
    assert found.notes == []
    [made] = planned("[logs.orders]\nid = 7", present(log(1, "old"))).changes
    assert (made.verb, made.shard, made.name) == ("add", 7, "orders")


def test_a_file_of_another_cluster_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="about 'x'"):
        planned("cluster_id = 'x'", present())


def test_what_is_exported_declares_the_same_cluster() -> None:
    there = present(
        log(1, "a"),
        log(2, 'q"uo te/é', labels={"team a": "x", "b": '"'}, learners={"": 1, "eu/z 1": 2}),
        log(3, "7", witnesses=1, protected=True, zone_rule="hard", leader_zone="z", weight=7),
        log(4, "over", state="closed", retention_records=100),
        log(5, "kept", retention_age_s=60, retention_bytes=1 << 20, max_bytes_per_s=1 << 16),
        grants={(WHO, "name/a*"): ("append", "read"), (OPS, "*"): ("admin",)},
    )
    there = msgspec.structs.replace(
        there,
        denials={(f"{WHO}*", "name/x"): ("all",), (OPS, "shard/3"): ("append", "read")},
        quotas={"": {"requests_per_s": 0, "address_connections_max": 20}, WHO: {"streams_max": 3}},
    )
    for ids in (False, True):
        text = exported(there, ids=ids)
        found = planned(text, there, prune=True)
        assert (found.changes, found.impossible) == ([], []), text
        assert "over" not in parse(text.encode()).logs
    assert parse(exported(present(), ids=False).encode()).quotas == []
    empty = msgspec.structs.replace(there, logs={}, grants={}, denials={}, quotas={})
    assert [one.shard for one in planned(exported(there, ids=True), empty).changes[2:6]] == [
        1,
        2,
        3,
        5,
    ]
