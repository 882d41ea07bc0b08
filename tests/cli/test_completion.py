"""Completion as shells use it: they run the program. A cluster of processes with TLS answers."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from logservice_client import LogClient
from logservice_wire.v1 import hakeeper_pb2

from logservice.cli.certificates.authority import Authority
from logservice.cli.processes.local_cluster import LocalCluster
from tests.local_stores import kill_stores
from tests.waiting import eventually

SETTINGS: dict[str, dict[str, object]] = {
    "storage": {"segment_bytes": 4 << 20, "ballast_bytes": 0},
    "raft": {"tick_ms": 20},
}
UP_S = 60.0
"""A hundred times what it takes, because the machine may be busy."""

LOGCTL = str(Path(sys.executable).with_name("logctl"))
TRIES = 20
"""The processor may be somebody else's for all of the second that completion waits."""

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """What a person has typed before the command, for a cluster with a log, a hold, a service and a
    TN shard.
    """
    folder = tmp_path_factory.mktemp("completion") / "c"
    cluster = LocalCluster.create(folder, shards=1, settings=SETTINGS, tls=True)
    try:
        cluster.up(UP_S)
        asyncio.run(filled(cluster))
        ca, cert, key = map(str, cluster.client_files())
        endpoints = ",".join(cluster.endpoints())
        yield [
            *("--endpoints", endpoints),
            *("--tls-ca", ca, "--tls-cert", cert, "--tls-key", key),
        ]
    finally:
        kill_stores(cluster)


async def filled(cluster: LocalCluster) -> None:
    async with LogClient(cluster.endpoints(), tls=cluster.client_tls()) as client:
        shard = await client.hakeeper.create_shard(name="orders", timeout=UP_S)
        await client.shard(shard).append([b"x"], timeout=UP_S)
        await client.shard(shard).set_hold("nightly", 1, timeout=UP_S)
        number = await client.hakeeper.create_tn_shard(shard, timeout=UP_S)
        assert number > 0

        async def handled(command: hakeeper_pb2.ServiceCommand) -> None:
            pass

        service = client.hakeeper.service("cn-east", "cn", handler=handled)
        running = asyncio.create_task(service.run())
        await eventually(lambda: service.silent_s < UP_S)
        running.cancel()


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if "LOGSERVICE" not in name}
    return {**kept, **more}


def asked(shell: str, words: list[str]) -> tuple[list[str], str]:
    """What the program answers to the script that it has given `shell`: values, and stderr."""
    place = words[-1] if shell == "fish" else str(len(words) - 1)
    variables = {
        "_LOGCTL_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": place,
    }
    ended = subprocess.run(
        [LOGCTL], env=environment(**variables), capture_output=True, text=True, timeout=UP_S
    )
    assert ended.returncode == 0
    lines = ended.stdout.strip().splitlines()
    if shell == "bash":
        return [line.removeprefix("plain,") for line in lines], ended.stderr
    if shell == "zsh":
        return lines[1::3], ended.stderr
    # Of a new fish the value has a line of its own, too.
    text = "\n".join(lines)
    return [part.partition(",")[2] or part for part in text.split("\n") if part], ended.stderr


CASES = {
    "log": (["hold", "release", "or"], "orders"),
    "store": (["stores", "drain", "store-"], "store-2"),
    "hold": (["hold", "release", "orders", ""], "nightly"),
    "service": (["services", "drain", "cn"], "cn-east"),
    "tn shard": (["tn", "delete", ""], None),
}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize("kind", CASES)
def test_what_a_shell_is_offered(options: list[str], shell: str, kind: str) -> None:
    words, wanted = CASES[kind]
    for _ in range(TRIES):
        found, complaint = asked(shell, ["logctl", *options, *words])
        assert complaint == ""
        if found:
            break
    assert (wanted in found) if wanted else all(map(str.isdecimal, found))
    assert found


def test_in_bash_itself(options: list[str]) -> None:
    """The script of ``--completion bash`` is sourced, and its function is called as bash does."""
    script = subprocess.run([LOGCTL, "--completion", "bash"], capture_output=True, text=True)
    words = ["logctl", *options, "hold", "release", "orders", "nigh"]
    quoted = " ".join(f"'{word}'" for word in words)
    body = f"""
{script.stdout}
COMP_WORDS=({quoted})
COMP_CWORD={len(words) - 1}
for try in {{1..{TRIES}}}; do
  _logctl_completion {LOGCTL}
  test ${{#COMPREPLY[@]}} -gt 0 && break
done
echo "${{COMPREPLY[@]}}"
"""
    ended = subprocess.run(
        ["bash", "--norc", "-c", body], env=environment(), capture_output=True, text=True
    )
    assert (ended.stdout, ended.stderr) == ("nightly\n", "")


def test_a_cluster_that_does_not_trust_us_gives_silence(options: list[str], tmp_path: Path) -> None:
    """TLS fails on either side, or is not spoken: no word, not even of gRPC's own."""
    Authority.create(tmp_path, "another", "example.org").issue_client("me")
    client = tmp_path / "clients" / "me"
    ca, cert, key = (str(client / name) for name in ("ca.pem", "client.pem", "client.key"))
    endpoints, ours = options[:2], options[2:4]
    theirs = ["--tls-cert", cert, "--tls-key", key]
    for more in (
        [],
        ["--tls-ca", ca],
        ["--tls-ca", "/no/such/file"],
        ours,
        [*ours, *theirs],
        ["--tls-ca", ca, *theirs],
    ):
        words = ["logctl", *endpoints, *more, "hold", "release", ""]
        assert asked("bash", words) == ([], ""), more


def test_no_cluster_gives_silence() -> None:
    for more in ([], ["--endpoints", "127.0.0.1:1"], ["--endpoints", "nonsense"]):
        for words in (["read", ""], ["hold", "release", "x", ""], ["tn", "delete", ""]):
            assert asked("bash", ["logctl", *more, *words]) == ([], "")
