"""`logctl acl` and `quota` on a real store with TLS: what is said is in force, and gone again."""

from __future__ import annotations

from pathlib import Path

import pytest

from logservice.cli.certificates.authority import Authority
from logservice.cli.logctl import logctl
from logservice.cli.processes.local_cluster import LocalCluster
from logservice.cli.shell import exit_codes
from tests.cli.test_processes import SETTINGS, Program
from tests.local_stores import kill_stores
from tests.waiting import wait_until

pytestmark = pytest.mark.processes

WHO = "wal-writer"


def test_access_and_quotas_by_verb(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    cluster = LocalCluster.create(tmp_path / "c", stores=1, settings=SETTINGS, tls=True)
    ctl = Program(logctl, cluster, capfd)

    def shown(client: str = "admin") -> list[object]:
        ca, certificate, key = cluster.client_files(client)
        return ["--tls-ca", ca, "--tls-cert", certificate, "--tls-key", key]

    def appends() -> bool:
        result = ctl(*shown(WHO), "append", 1, "record")
        if result.code:
            assert (result.code, "PERMISSION_DENIED" in result.err) == (exit_codes.REFUSED, True)
        return not result.code

    try:
        cluster.up(60)
        identity = Authority.open(cluster.directory / "certs").client_uri(WHO)
        assert ctl.json(*shown(), "acl", "list") == []
        assert not appends()
        granted = ctl.json(*shown(), "acl", "grant", identity, "name/log-*", "append", "read")
        assert granted == {"version": 1}
        assert ctl.json(*shown(), "acl", "list") == [
            {
                "rule": "grant",
                "identity": identity,
                "scope": "name/log-*",
                "roles": ["append", "read"],
            }
        ]
        wait_until(appends)
        refused = ctl(*shown(WHO), "acl", "grant", identity, "*", "admin")
        assert (refused.code, "PERMISSION_DENIED" in refused.err) == (exit_codes.REFUSED, True)
        revoked = ctl.json(*shown(), "acl", "revoke", identity, "name/log-*", "append")
        assert revoked == {"version": 2}
        wait_until(lambda: not appends())
        assert "record" in ctl(*shown(WHO), "read", 1).out
        wrong = ctl(*shown(), "acl", "grant", "wal-writer", "*", "read")
        assert (wrong.code, "INVALID_ARGUMENT" in wrong.err) == (exit_codes.USAGE, True)
        elsewhere = identity.replace("/cluster/", "/cluster/other-")
        wrong = ctl(*shown(), "acl", "deny", elsewhere, "*", "all")
        assert (wrong.code, "INVALID_ARGUMENT" in wrong.err) == (exit_codes.USAGE, True)
        for mistyped in (WHO, f"{identity} ", identity.replace("/client/", "/store/")):
            assert ctl(*shown(), "acl", "check", mistyped, 1, "read").code == exit_codes.USAGE
        deny_and_undeny(ctl, shown(), shown(WHO), identity)
        set_and_clear_quotas(ctl, shown(), identity)
        ask_who_came(ctl, shown(), identity)
    finally:
        kill_stores(cluster)


def deny_and_undeny(ctl: Program, admin: list[object], client: list[object], identity: str) -> None:
    everybody = identity.removesuffix(WHO) + "wal-*"
    assert ctl.json(*admin, "acl", "check", identity, "log-1", "read")["allowed"] is True
    denied = ctl.json(*admin, "acl", "deny", everybody, "shard/1", "all", "--wait")
    assert denied == {"version": 3, "stores": 1}
    read = ctl(*client, "read", 1)
    assert (read.code, "PERMISSION_DENIED" in read.err) == (exit_codes.REFUSED, True)
    found = ctl.json(*admin, "acl", "check", identity, 1, "read")
    assert found == {
        "allowed": False,
        "why": "denied",
        "rules": [f"{everybody} shard/1 all"],
        "version": 3,
    }
    found = ctl.json(*admin, "acl", "check", identity.replace(WHO, "admin"), 0, "admin")
    assert (found["allowed"], found["rules"]) == (True, [])
    found = ctl.json(*admin, "acl", "check", identity, 0, "admin")
    assert (found["allowed"], found["why"]) == (False, "not granted")
    part = ctl(*admin, "acl", "undeny", everybody, "shard/1", "read")
    assert (part.code, "INVALID_ARGUMENT" in part.err) == (exit_codes.USAGE, True)
    ctl.json(*admin, "acl", "undeny", everybody, "shard/1", "all", "--wait")
    assert "record" in ctl(*client, "read", 1).out


def set_and_clear_quotas(ctl: Program, admin: list[object], identity: str) -> None:
    asked = ctl.json(*admin, "quota", "set", identity, "--bytes-per-s", 70000, "--calls", 9)
    assert asked == {"version": 1}
    ctl.json(*admin, "quota", "set", "--calls", 8, "--streams", 7)
    rows = {one["whose"]: one for one in ctl.json(*admin, "quota", "show")}
    assert (rows[identity]["calls"], rows["every identity"]["calls"]) == (9, 8)
    assert rows["configured"]["requests_per_s"] == 0
    holds = ctl.json(*admin, "quota", "show", identity)
    assert (holds["calls"], holds["calls_by"]) == (9, "its own quota")
    assert (holds["streams"], holds["streams_by"]) == (7, "the quota of every identity")
    assert (holds["requests_per_s"], holds["requests_per_s_by"]) == (0, "the configuration")
    low = ctl(*admin, "quota", "set", identity, "--bytes-per-s", 1)
    assert (low.code, "INVALID_ARGUMENT" in low.err) == (exit_codes.USAGE, True)
    assert ctl(*admin, "quota", "set", identity).code == exit_codes.USAGE
    ctl.json(*admin, "quota", "clear", identity, "--only", "calls")
    holds = ctl.json(*admin, "quota", "show", identity)
    assert (holds["calls"], holds["bytes_per_s"]) == (8, 70000)
    ctl.json(*admin, "quota", "clear", identity)
    ctl.json(*admin, "quota", "clear")
    assert [one["whose"] for one in ctl.json(*admin, "quota", "show")] == ["configured"]


def ask_who_came(ctl: Program, admin: list[object], identity: str) -> None:
    rows = {one["identity"]: one for one in ctl.json(*admin, "identities")}
    row = rows[identity]
    assert row["calls"] > row["denials"] > 0
    assert (row["denied_what"] is not None, row["store"]) == (True, "store-1")
    assert set(rows) == {identity, identity.replace(WHO, "admin")}
    denied = ctl.json(*admin, "identities", "--denied")
    assert [one["identity"] for one in denied] == [identity]
    assert ctl.json(*admin, "identities", "--unused-for", "1h") == []
    assert len(ctl.json(*admin, "identities", identity, "--each-store")) == 1
    never = identity.replace(WHO, "never")
    ctl.json(*admin, "acl", "grant", never, "*", "read")
    used = {one["identity"]: one for one in ctl.json(*admin, "acl", "list", "--used")}
    assert used[never]["last_use"] is None
    assert used[identity]["last_use"] >= row["first_seen"]
