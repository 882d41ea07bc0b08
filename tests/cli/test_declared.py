"""`logctl diff`, `apply` and `export` on real stores with TLS."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from logservice_client import SyncLogClient, TlsFiles
from logservice_wire.v1 import hakeeper_pb2

from logservice.cli.certificates.authority import Authority
from logservice.cli.logctl import logctl
from logservice.cli.processes.local_cluster import LocalCluster
from logservice.cli.shell import exit_codes
from tests.cli.test_processes import SETTINGS, Program
from tests.local_stores import started_cluster

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("cluster") / "c"
    with started_cluster(folder, stores=3, settings=SETTINGS, tls=True) as running:
        yield running


@pytest.fixture
def ctl(
    cluster: LocalCluster, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Program:
    for name, file in zip(("CA", "CERT", "KEY"), cluster.client_files("admin"), strict=True):
        monkeypatch.setenv(f"LOGSERVICE_TLS_{name}", str(file))
    return Program(logctl, cluster, capfd)


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[SyncLogClient]:
    ca, certificate, key = cluster.client_files("admin")
    with SyncLogClient(
        cluster.endpoints(), tls=TlsFiles(str(ca), str(certificate), str(key))
    ) as one:
        yield one


def who(cluster: LocalCluster, name: str = "db") -> str:
    return Authority.open(cluster.directory / "certs").client_uri(name)


def written(folder: Path, text: str) -> Path:
    path = folder / "cluster.toml"
    path.write_text(text, encoding="utf-8")
    return path


def named(client: SyncLogClient, name: str) -> hakeeper_pb2.ShardInfo:
    return client.hakeeper.resolve_shard(name, fresh=True)


def grant_text(cluster: LocalCluster, name: str, scope: str) -> str:
    identity = who(cluster, name)
    return f'[[grants]]\nidentity = "{identity}"\nscope = "{scope}"\nroles = ["read"]\n'


def granted(ctl: Program) -> dict[tuple[str, str], list[str]]:
    rows = ctl.json("acl", "list")
    assert isinstance(rows, list)
    return {(row["identity"], row["scope"]): row["roles"] for row in rows}


def test_a_cluster_becomes_what_its_file_says_and_exports_that_file(
    ctl: Program, cluster: LocalCluster, client: SyncLogClient, tmp_path: Path
) -> None:
    file = written(
        tmp_path,
        f"""
[cluster]
store_timeout_s = 600
catch_up_bytes_per_s = 8388608
[logs.orders]
replicas = 3
protected = true
retention_age_s = 86400
labels = {{ team = "shop" }}
[logs."orders/wal-2"]
replicas = 1
max_bytes_per_s = 131072
weight = 200
[[grants]]
identity = "{who(cluster)}"
scope = "name/orders"
roles = ["read", "append"]
""",
    )
    looked = ctl("diff", file, "-o", "json")
    assert looked.code == exit_codes.NEGATIVE
    plan = json.loads(looked.out)
    assert [(one["verb"], one["kind"]) for one in plan["changes"]] == [
        ("change", "settings"),
        ("add", "log"),
        ("add", "log"),
        ("add", "grant"),
    ]
    assert plan["changes"][0]["fields"]["store_timeout_s"] == {"old": 300.0, "new": 600.0}
    assert plan["notes"] == ["not in the file, and stays: 1 log: log-1"]
    people = ctl("diff", file)
    assert "+ log orders\n" in people.out
    assert "    store_timeout_s: 300.0 -> 600.0\n" in people.out

    made = ctl("apply", file, "--yes")
    assert (made.code, made.out) == (0, "4 changes made\n"), made.err
    assert "[2/4] log orders: done, shard " in made.err
    orders, second = named(client, "orders"), named(client, "orders/wal-2")
    assert (orders.policy.protected, orders.policy.retention_age_s) == (True, 86400)
    assert dict(orders.labels) == {"team": "shop"}
    assert (second.wanted_replicas, second.policy.weight) == (1, 200)
    assert client.shard(orders.shard_id).append(b"x") == 1
    assert ctl("diff", file).code == 0
    assert ctl("apply", file).out == "nothing to do\n"

    exported = ctl("export")
    assert exported.code == 0
    assert ctl("diff", "-", stdin=exported.out.encode()).code == 0
    assert ctl("diff", "-", "--prune", stdin=exported.out.encode()).out == "no difference\n"
    ids = ctl("export", "--ids").out
    assert f"id = {orders.shard_id}\n" in ids
    assert ctl("diff", "-", "--prune", stdin=ids.encode()).code == 0


def test_a_log_is_changed_and_renamed_and_roles_are_taken_only_with_prune(
    ctl: Program, cluster: LocalCluster, client: SyncLogClient, tmp_path: Path
) -> None:
    shard = client.hakeeper.create_shard(name="before", replicas=1, labels={"a": "1", "b": "2"})
    ctl.json("acl", "grant", who(cluster, "x"), "name/before", "read")
    ctl.json("acl", "grant", who(cluster, "y"), "shard/1", "read", "truncate")
    text = f"""
[logs.after]
id = {shard}
replicas = 3
labels = {{ a = "1" }}
[[grants]]
identity = "{who(cluster, "y")}"
scope = "shard/1"
roles = ["read"]
"""
    file = written(tmp_path, text)
    assert ctl("apply", file, "--yes").code == 0
    info = named(client, "after")
    assert (info.shard_id, info.wanted_replicas, dict(info.labels)) == (shard, 3, {"a": "1"})
    shown = ctl("diff", file)
    assert (shown.code, "stays without --prune" in shown.err) == (0, True)
    roles = granted(ctl)
    assert roles[who(cluster, "y"), "shard/1"] == ["read", "truncate"]
    assert (who(cluster, "x"), "name/before") in roles
    assert ctl("apply", file, "--yes", "--prune").code == 0
    assert granted(ctl) == {(who(cluster, "y"), "shard/1"): ["read"]}
    assert ctl("diff", file, "--prune").code == 0
    assert named(client, "log-1").shard_id == 1, "no log is ever deleted"


def test_denials_and_quotas_come_and_go(
    ctl: Program, cluster: LocalCluster, tmp_path: Path
) -> None:
    whose, everybody = who(cluster, "z"), who(cluster, "z-*")
    denials = f"""
[[denials]]
identity = "{everybody}"
scope = "name/secret"
roles = ["read"]
[[denials]]
identity = "{whose}"
scope = "*"
roles = ["all"]
"""
    quotas = f"""
[[quotas]]
requests_per_s = 5000
[[quotas]]
identity = "{whose}"
streams_max = 20
bytes_per_s = 1000000
"""
    file = written(tmp_path, denials + quotas)
    made = ctl("apply", file, "--yes")
    assert (made.code, made.out) == (0, "4 changes made\n"), made.err
    assert ctl("diff", file).code == 0
    exported = ctl("export").out
    assert ctl("diff", "-", "--prune", stdin=exported.encode()).code == 0
    file.write_text(
        denials.replace('["read"]', '["read", "append"]').replace('["all"]', '["truncate"]')
        + quotas.replace("streams_max = 20\n", "")
    )
    assert ctl("apply", file, "--yes").code == 0
    rules = ctl.json("acl", "list")
    assert isinstance(rules, list)
    roles = {row["identity"]: row["roles"] for row in rules if row["rule"] == "deny"}
    assert roles == {everybody: ["append", "read"], whose: ["all"]}, "nothing is lifted"
    pruned = written(tmp_path, "grants = []\n" + file_of(denials, quotas))
    assert ctl("apply", pruned, "--yes", "--prune").code == 0
    rules = ctl.json("acl", "list")
    assert isinstance(rules, list)
    assert {row["identity"]: row["roles"] for row in rules} == {
        everybody: ["read"],
        whose: ["truncate"],
    }
    shown = ctl.json("quota", "show")
    assert isinstance(shown, list)
    assert [row["streams"] for row in shown if row["whose"] == whose] == [None]
    assert (
        ctl("apply", "-", "--yes", "--prune", stdin=b"grants = []\ndenials = []\nquotas = []").code
        == 0
    )
    assert ctl.json("acl", "list") == []


def file_of(denials: str, quotas: str) -> str:
    """Another denial, which is less than what was there, and a quota without one of its values."""
    return denials.replace('["all"]', '["truncate"]') + quotas.replace("streams_max = 20\n", "")


def test_it_asks_and_takes_no_for_an_answer(
    ctl: Program, cluster: LocalCluster, tmp_path: Path
) -> None:
    file = written(tmp_path, "[logs.unasked]\nreplicas = 1")
    for answer, code in (("n\n", exit_codes.INTERRUPTED), ("y\n", exit_codes.OK)):
        ended = subprocess.run(
            ctl_command(cluster, "apply", file), input=answer, capture_output=True, text=True
        )
        assert ended.returncode == code, ended.stderr
        assert "+ log unasked\n" in ended.stderr
    assert ctl("diff", file).code == 0
    nobody = ctl("apply", "-", stdin=b"[logs.x]")
    assert (nobody.code, "--yes" in nobody.err) == (exit_codes.USAGE, True)


def test_the_first_refusal_ends_it_and_says_what_was_done(
    ctl: Program, client: SyncLogClient, tmp_path: Path
) -> None:
    file = written(
        tmp_path,
        "[logs.first]\nreplicas = 1\n[logs.wide]\nreplicas = 5\n[logs.third]\nreplicas = 1\n",
    )
    refused = ctl("--timeout", 3, "apply", file, "--yes")
    assert refused.code == exit_codes.UNAVAILABLE
    assert "note: log wide shall have 5 replicas, and 3 stores are alive" in refused.err
    assert "NOT_ENOUGH_STORES" in refused.err
    assert (
        "1 of 3 changes made\nnot done, or not known: log wide\nnot begun: log third\n"
        in refused.err
    )
    document = json.loads(ctl("--timeout", 3, "apply", file, "--yes", "-o", "json").out)
    assert [one["outcome"] for one in document["changes"]] == ["unfinished", "not begun"]
    file.write_text("[logs.first]\nreplicas = 1\n[logs.third]\nreplicas = 1\n")
    assert ctl("apply", file, "--yes").code == 0
    assert named(client, "third").wanted_replicas == 1
    client.hakeeper.create_shard(name="witnessed", witnesses=1, waive_g1=True)
    file.write_text("[logs.witnessed]\nwitnesses = 0\n[logs.fourth]\nreplicas = 1\n")
    impossible = ctl("apply", file, "--yes")
    assert (impossible.code, "VERB_REFUSED" in impossible.err) == (exit_codes.REFUSED, True)
    assert "fourth" not in [one.name for one in client.hakeeper.list_shards()]


def ctl_command(cluster: LocalCluster, *words: object) -> list[str]:
    endpoints = ",".join(cluster.endpoints())
    start = [
        sys.executable,
        "-m",
        "logservice.cli.logctl",
        "--endpoints",
        endpoints,
        "--timeout",
        "60",
    ]
    return [*start, *map(str, words)]


def begun(cluster: LocalCluster, file: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ctl_command(cluster, "apply", file, "--yes"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


LONG = "x" * 110
"""In names, so that some lines about them fill a pipe."""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_stopped_in_the_middle_it_goes_on_when_it_is_run_again(
    ctl: Program, cluster: LocalCluster, client: SyncLogClient, tmp_path: Path, how: signal.Signals
) -> None:
    """Nobody reads what it says after the third step, so that it cannot end before the signal: its
    pipe is full by then.
    """
    names = [f"{how.name}-{number}" for number in range(5)]
    scopes = [f"name/{LONG}-{how.name}-{number}" for number in range(35)]
    logs = "".join(f"[logs.{name}]\nreplicas = 1\n" for name in names)
    file = written(tmp_path, logs + "".join(grant_text(cluster, "db", one) for one in scopes))
    said, saying = os.pipe()
    fcntl.fcntl(saying, fcntl.F_SETPIPE_SZ, 4096)
    with subprocess.Popen(
        ctl_command(cluster, "apply", file, "--yes"), stdout=subprocess.DEVNULL, stderr=saying
    ) as running:
        os.close(saying)
        shown = b""
        while not (b"[3/" in shown and shown.endswith(b"\n")):
            one = os.read(said, 1)
            assert one, shown
            shown += one
        running.send_signal(how)
        while one := os.read(said, 4096):
            shown += one
    os.close(said)
    assert len({one.name for one in client.hakeeper.list_shards()} & set(names)) >= 3
    assert len({scope for _, scope in granted(ctl)} & set(scopes)) < len(scopes)
    if how is signal.SIGINT:
        assert running.returncode == exit_codes.INTERRUPTED
        assert f"not begun: grant to {who(cluster)} over {scopes[-1]}\n".encode() in shown
    assert ctl("apply", file, "--yes").code == 0
    assert {one.name for one in client.hakeeper.list_shards()} >= set(names)
    assert {scope for _, scope in granted(ctl)} >= set(scopes)
    assert ctl("diff", file).code == 0


def test_two_at_once_make_one_cluster(
    ctl: Program, cluster: LocalCluster, client: SyncLogClient, tmp_path: Path
) -> None:
    names = [f"both-{number}" for number in range(8)]
    grants = "".join(grant_text(cluster, name, f"name/{name}") for name in names)
    logs = "".join(f'[logs.{name}]\nreplicas = 1\nlabels = {{ a = "b" }}\n' for name in names)
    file = written(tmp_path, logs + grants)
    both = [begun(cluster, file) for _ in range(2)]
    shown = [one.communicate(timeout=120)[1] for one in both]
    assert [one.returncode for one in both] == [0, 0], shown
    found = [one.name for one in client.hakeeper.list_shards(name_prefix="both-")]
    assert sorted(found) == names
    assert ctl("diff", file).code == 0


def test_what_somebody_else_changed_is_not_overwritten(
    ctl: Program, cluster: LocalCluster, client: SyncLogClient, tmp_path: Path
) -> None:
    """INV-DECLARED-2: the plan is shown, and while a person reads it, the log changes."""
    shard = client.hakeeper.create_shard(name="contested", replicas=1)
    file = written(tmp_path, "[logs.contested]\nweight = 300\nlabels = { by = 'file' }\n")
    with subprocess.Popen(
        ctl_command(cluster, "apply", file),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as running:
        assert running.stdin is not None
        assert running.stderr is not None
        for line in running.stderr:
            if "weight: 100 -> 300" in line:
                break
        policy = client.hakeeper.shard_info(shard, fresh=True).policy
        policy.weight = 150
        client.hakeeper.change_shard(shard, policy=policy)
        running.stdin.write("y\n")
        running.stdin.flush()
        shown = running.stderr.read()
    assert running.returncode == exit_codes.REFUSED, shown
    assert "weight was 100, and is 150" in shown
    info = client.hakeeper.shard_info(shard, fresh=True)
    assert (info.policy.weight, dict(info.labels)) == (150, {})
    assert ctl("diff", file).code == exit_codes.NEGATIVE
