"""`logctl acl` on a real store with TLS: a grant is in force, and a revoked one is gone."""

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


def test_grant_list_and_revoke(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
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
        everybody = identity.removesuffix(WHO) + "wal-*"
        assert ctl.json(*shown(), "acl", "check", identity, "log-1", "read")["allowed"] is True
        denied = ctl.json(*shown(), "acl", "deny", everybody, "shard/1", "all", "--wait")
        assert denied == {"version": 3, "stores": 1}
        read = ctl(*shown(WHO), "read", 1)
        assert (read.code, "PERMISSION_DENIED" in read.err) == (exit_codes.REFUSED, True)
        found = ctl.json(*shown(), "acl", "check", identity, 1, "read")
        assert found == {
            "allowed": False,
            "why": "denied",
            "rules": [f"{everybody} shard/1 all"],
            "version": 3,
        }
        admin = Authority.open(cluster.directory / "certs").client_uri("admin")
        found = ctl.json(*shown(), "acl", "check", admin, 0, "admin")
        assert (found["allowed"], found["rules"]) == (True, [])
        found = ctl.json(*shown(), "acl", "check", identity, 0, "admin")
        assert (found["allowed"], found["why"]) == (False, "not granted")
        part = ctl(*shown(), "acl", "undeny", everybody, "shard/1", "read")
        assert (part.code, "INVALID_ARGUMENT" in part.err) == (exit_codes.USAGE, True)
        ctl.json(*shown(), "acl", "undeny", everybody, "shard/1", "all", "--wait")
        assert "record" in ctl(*shown(WHO), "read", 1).out
    finally:
        kill_stores(cluster)
