"""The image by itself: it is small, not root, read-only and healthy, and it stops in good order."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from docker.models.containers import Container

from tests.docker.engine import Engine

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]

SIZE_MAX = 300_000_000
"""The bound of its size. It is 188 MB now; Debian's minimal system is 124 MB of them."""
CONFIG = """
[store]
store_id = "only"
cluster_id = "one"
data_directories = ["/var/lib/logservice"]
[listen]
client = "127.0.0.1:7401"
peer = "127.0.0.1:7501"
insecure_plaintext = true
[bootstrap]
hakeeper_members = [{ store_id = "only", peer_address = "127.0.0.1:7501" }]
replicas = 1
[admin]
listen = "127.0.0.1:7601"
"""
HARDENED: dict[str, object] = {
    "read_only": True,
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges"],
    "network_mode": "none",
}


@pytest.fixture
def store(engine: Engine, image: str, tmp_path: Path) -> Iterator[Container]:
    """The container of a single store without a network; it is not started."""
    config = tmp_path / "store.toml"
    config.write_text(CONFIG)
    config.chmod(0o644)
    mounts = {str(config): {"bind": "/etc/logservice/store.toml", "mode": "ro"}}
    # This is the image's own check, but more frequent.
    often = {"interval": 1_000_000_000}
    container = engine.client.containers.create(
        image, volumes=mounts, healthcheck=often, **HARDENED
    )
    assert "probe" in container.attrs["Config"]["Healthcheck"]["Test"]
    yield container
    container.remove(force=True, v=True)


def run(engine: Engine, image: str, *command: str, entrypoint: str | None = None) -> str:
    output = engine.client.containers.run(
        image, list(command), entrypoint=entrypoint, remove=True, **HARDENED
    )
    return bytes(output).decode()


def until_healthy(container: Container, timeout_s: float = 180) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        container.reload()
        if container.attrs["State"]["Health"]["Status"] == "healthy":
            return
        assert container.status == "running", container.logs().decode()
        assert time.monotonic() < deadline, container.logs().decode()
        time.sleep(0.2)


def until_done(container: Container, *words: str, timeout_s: float = 180) -> str:
    """What `logctl` in the store's container prints when it succeeds."""
    deadline = time.monotonic() + timeout_s
    while True:
        done = container.exec_run(["logctl", "--endpoints", "127.0.0.1:7401", *words])
        if done.exit_code == 0:
            return bytes(done.output).decode()
        assert time.monotonic() < deadline, done.output
        time.sleep(0.2)


def test_small_and_nobodys_root(engine: Engine, image: str) -> None:
    about = engine.client.images.get(image).attrs
    assert about["Size"] < SIZE_MAX
    assert about["Config"]["User"] == "10001:10001"
    assert about["Config"]["StopSignal"] == "SIGTERM"
    assert run(engine, image, "-c", "id -u; id -g", entrypoint="/bin/sh").split() == ["10001"] * 2


def test_both_programs_and_nothing_to_install_with(engine: Engine, image: str) -> None:
    assert "logservice" in run(engine, image, "--version")
    assert "logctl" in run(engine, image, "--version", entrypoint="logctl")
    script = (
        "import importlib.util as u; print([n for n in ('pip', 'setuptools') if u.find_spec(n)])"
    )
    assert run(engine, image, "-c", script, entrypoint="/opt/logservice/bin/python").strip() == "[]"


def test_without_a_configuration_it_says_so(engine: Engine, image: str) -> None:
    container = engine.client.containers.create(image, **HARDENED)
    try:
        container.start()
        assert container.wait(timeout=60)["StatusCode"] == 2
        assert "cannot read configuration /etc/logservice/store.toml" in container.logs().decode()
    finally:
        container.remove(force=True, v=True)


def test_healthy_writes_to_its_volume_only_and_stops_in_good_order(store: Container) -> None:
    store.start()
    until_healthy(store)
    # The store lives; its first shard comes a moment later.
    until_done(store, "append", "1", "kept")
    # The image holds only the folder where the configuration is mounted.
    changed = {change["Path"] for change in store.diff() or ()}
    assert changed <= {"/etc", "/etc/logservice", "/etc/logservice/store.toml"}
    mode = store.exec_run(["stat", "-c", "%a %u", "/var/lib/logservice"]).output.decode()
    assert mode.split() == ["700", "10001"]

    store.stop(timeout=120)
    store.reload()
    assert store.attrs["State"]["ExitCode"] == 0, store.logs().decode()

    store.start()
    until_healthy(store)
    assert "kept" in until_done(store, "read", "1")


def test_a_dead_store_is_not_healthy(store: Container) -> None:
    store.start()
    until_healthy(store)
    assert store.exec_run(["logservice", "store", "probe", "--ready"]).exit_code in (0, 1)
    nobody = store.exec_run(["logservice", "store", "probe", "127.0.0.1:1"])
    assert nobody.exit_code == 1
    assert "no answer" in nobody.output.decode()


def test_a_volume_of_another_user_is_refused(engine: Engine, image: str, tmp_path: Path) -> None:
    config = tmp_path / "store.toml"
    config.write_text(CONFIG)
    config.chmod(0o644)
    roots = engine.folder / "of-root"
    roots.mkdir(mode=0o700)
    container = engine.client.containers.create(
        image,
        volumes={
            str(config): {"bind": "/etc/logservice/store.toml", "mode": "ro"},
            str(roots): {"bind": "/var/lib/logservice", "mode": "rw"},
        },
        **HARDENED,
    )
    try:
        container.start()
        assert container.wait(timeout=60)["StatusCode"] == 6
        assert "cannot start" in container.logs().decode()
        assert list(roots.iterdir()) == []
    finally:
        container.remove(force=True, v=True)
