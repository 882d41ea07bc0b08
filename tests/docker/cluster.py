"""StoreContainers: a cluster of store containers with TLS on a network of its own, and the faults
that can hit them.

The network is internal: only the containers and this process reach each other on it. Each store has
a fixed address there, and a data directory on a small disk of its own (a tmpfs), which survives its
container. A cut in one direction is a rule in the network namespace of the one container, and ends
with it.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import docker.errors
import docker.types
from docker.models.containers import Container
from docker.models.networks import Network
from logservice_client.tls import TlsFiles

from logservice.cli.certificates.authority import Authority
from logservice.cli.ctl.outside_view import view_from_outside
from logservice.cli.processes.toml_text import toml_text
from logservice.server.monitor.cluster.rows import ClusterReport
from tests.docker.engine import Engine
from tests.tmpfs import mounted

MIB = 1 << 20
DISK_BYTES = 256 * MIB
USER = 10001
CLUSTER = "containers"
FREEZES = 10
"""How often a container is asked to stand still."""

HEARS, SPEAKS = "INPUT", "OUTPUT"
"""The direction that a one-way cut takes from a store."""

_GRACE_S = 120
"""A bound against hanging: a stop must end by itself, however long a busy machine takes for it."""
_LOOK_S = 10.0


class StoreContainers:
    """Use `store_containers`."""

    def __init__(self, engine: Engine, image: str, network: Network, names: list[str]) -> None:
        self.network = network
        self._engine = engine
        self._image = image
        self._folder = engine.folder / "cluster"
        subnet = ipaddress.ip_network(network.attrs["IPAM"]["Config"][0]["Subnet"])
        self.hosts = {name: str(subnet[10 + number]) for number, name in enumerate(names)}
        self.containers: dict[str, Container] = {}
        authority = Authority.create(self._folder / "certs", CLUSTER, "logservice.internal")
        admin = authority.issue_client("admin")
        self.tls_files = [str(admin / name) for name in ("ca.pem", "client.pem", "client.key")]
        self.tls = TlsFiles(*self.tls_files)
        for name in names:
            self._lay_out(name, authority)

    @property
    def addresses(self) -> dict[str, str]:
        """Client addresses by store."""
        return {name: f"{host}:7401" for name, host in self.hosts.items()}

    def disk(self, name: str) -> Path:
        """Where the store's disk is mounted on the host."""
        return self._folder / "disks" / name

    # --- the life of a container ------------------------------------------------------------------

    def create(self, name: str, image: str | None = None) -> None:
        """Create and start a new container for the store, on the disk that the last one left."""
        data = self.disk(name) / "data"
        data.mkdir(mode=0o700, exist_ok=True)
        os.chown(data, USER, USER)
        api = self._engine.client.api
        endpoint = api.create_endpoint_config(ipv4_address=self.hosts[name], aliases=[name])
        made = api.create_container(
            image or self._image,
            name=name,
            host_config=api.create_host_config(
                binds={
                    str(self._folder / name): {"bind": "/etc/logservice", "mode": "ro"},
                    str(data): {"bind": "/var/lib/logservice", "mode": "rw"},
                },
                read_only=True,
                cap_drop=["ALL"],
                security_opt=["no-new-privileges"],
                network_mode=self.network.name,
            ),
            networking_config=api.create_networking_config({self.network.name: endpoint}),
        )
        self.containers[name] = self._engine.client.containers.get(made["Id"])
        self.start(name)

    def start(self, name: str) -> None:
        self.containers[name].start()

    def kill(self, name: str) -> None:
        self.containers[name].kill("SIGKILL")
        self.containers[name].wait(timeout=60)

    def stop(self, name: str) -> int:
        """Stop a store; return its exit code, which is 0 when it ended by itself."""
        self.containers[name].stop(timeout=_GRACE_S)
        return int(self.containers[name].wait(timeout=60)["StatusCode"])

    def replace(self, name: str, image: str) -> tuple[int, str]:
        """Run the store from another image; return the old container's exit code and its log."""
        ended = self.stop(name)
        logs = self.logs(name)
        self.containers.pop(name).remove(v=True)
        self.create(name, image)
        return ended, logs

    def logs(self, name: str) -> str:
        return bytes(self.containers[name].logs()).decode(errors="replace")

    # --- faults -----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def killed(self, *names: str) -> Iterator[None]:
        for name in names:
            self.kill(name)
        yield
        for name in names:
            self.start(name)

    @contextlib.contextmanager
    def paused(self, name: str) -> Iterator[None]:
        self._pause(self.containers[name])
        yield
        self.containers[name].unpause()

    def _pause(self, container: Container) -> None:
        """Freeze it. With the first version of control groups the kernel can only try, and runc
        leaves it to its caller to ask again (opencontainers/runc, pull request 4388).
        """
        for left in reversed(range(FREEZES)):
            try:
                container.pause()
            except docker.errors.APIError as error:
                if not left or "unable to freeze" not in str(error):
                    raise
                time.sleep(0.2)
            else:
                return

    @contextlib.contextmanager
    def disconnected(self, name: str) -> Iterator[None]:
        """Take away a store's interface and its address while the block runs."""
        self.network.disconnect(self.containers[name])
        yield
        self.network.connect(self.containers[name], ipv4_address=self.hosts[name], aliases=[name])

    @contextlib.contextmanager
    def cut(self, name: str, direction: str) -> Iterator[None]:
        """Cut a store off in one direction while the block runs; its own loopback stays."""
        rule = [direction, "!", "-i" if direction == HEARS else "-o", "lo", "-j", "DROP"]
        self._in_network_of(name, "iptables", "-I", *rule)
        yield
        self._in_network_of(name, "iptables", "-D", *rule)

    def _in_network_of(self, name: str, *command: str) -> None:
        self.containers[name].reload()
        pid = self.containers[name].attrs["State"]["Pid"]
        subprocess.run(["nsenter", "-t", str(pid), "-n", *command], check=True, capture_output=True)

    # --- looking ----------------------------------------------------------------------------------

    def report(self) -> ClusterReport | None:
        """The report on the whole cluster from a store that reaches HAKeeper."""
        return view_from_outside(",".join(self.addresses.values()), _LOOK_S, self.tls).report

    def until_well(self, timeout_s: float = 180) -> ClusterReport:
        """Wait until every store is ready and every shard has a leader."""
        deadline = time.monotonic() + timeout_s
        while True:
            report = self.report()
            if report is not None:
                cluster = report.cluster
                ready = cluster.stores_ready == cluster.stores == len(self.hosts)
                if ready and cluster.shards > 1 and not cluster.shards_without_leader:
                    return report
            for name, container in self.containers.items():
                container.reload()
                assert container.status == "running", f"{name}\n{self.logs(name)[-3000:]}"
            assert time.monotonic() < deadline, report
            time.sleep(0.2)

    # --- laying out -------------------------------------------------------------------------------

    def _lay_out(self, name: str, authority: Authority) -> None:
        host = self.hosts[name]
        issued = authority.issue_store(name, [name, host])
        folder = self._folder / name
        (folder / "tls").mkdir(parents=True)
        for file in issued.iterdir():
            shutil.copyfile(file, folder / "tls" / file.name)
        (folder / "store.toml").write_text(toml_text(self._config(name, host, authority)))
        # The files are as mounted secrets are: root owns them, and the store's group may read them.
        for path in [folder, *folder.rglob("*")]:
            os.chown(path, 0, USER)
            path.chmod(0o750 if path.is_dir() else 0o440)

    def _config(self, name: str, host: str, authority: Authority) -> dict[str, dict[str, object]]:
        first = list(self.hosts.items())[:3]
        members = [{"store_id": one, "peer_address": f"{other}:7501"} for one, other in first]
        planes = {"": "client", "peer_": "peer"}
        return {
            "store": {
                "store_id": name,
                "cluster_id": CLUSTER,
                "data_directories": ["/var/lib/logservice"],
            },
            "listen": {"client": f"{host}:7401", "peer": f"{host}:7501"},
            "bootstrap": {"hakeeper_members": members, "log_shards": 2, "replicas": 3},
            "storage": {
                "segment_bytes": 4 * MIB,
                "ballast_bytes": 8 * MIB,
                "reserve_bytes": 16 * MIB,
            },
            "truncation": {"interval_s": 1.0},
            "security": {"admins": [authority.client_uri("admin")]},
            "tls": {
                "client_ca": "tls/client-ca.pem",
                "peer_ca": "tls/peer-ca.pem",
                **{f"{key}certificate": f"tls/{plane}-plane.pem" for key, plane in planes.items()},
                **{f"{key}key": f"tls/{plane}-plane.key" for key, plane in planes.items()},
            },
        }


@contextlib.contextmanager
def store_containers(engine: Engine, image: str, count: int) -> Iterator[StoreContainers]:
    """Stores that are laid out and started; everything is removed at the end."""
    names = [f"store-{number}" for number in range(1, count + 1)]
    network = _network(engine)
    try:
        cluster = StoreContainers(engine, image, network, names)
        with mounted([cluster.disk(name) for name in names], DISK_BYTES):
            try:
                for name in names:
                    cluster.create(name)
                yield cluster
            finally:
                for container in cluster.containers.values():
                    container.remove(force=True, v=True)
    finally:
        network.remove()


def _network(engine: Engine) -> Network:
    """An internal network in a range that nothing on this machine uses."""
    while True:
        subnet = f"10.{random.randrange(200, 250)}.{random.randrange(256)}.0/24"
        pool = docker.types.IPAMPool(subnet=subnet)
        try:
            made = engine.client.networks.create(
                "stores",
                driver="bridge",
                internal=True,
                ipam=docker.types.IPAMConfig(pool_configs=[pool]),
            )
        except docker.errors.APIError as error:
            if "overlap" not in str(error).lower():
                raise
            continue
        made.reload()
        return made
