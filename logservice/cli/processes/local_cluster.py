"""LocalCluster: a cluster of store processes on this machine; the embedded default.

Theory of operation. `DIR/cluster.json` says which stores there are and where they listen. One
folder per store holds its configuration, data, log and pid file. Everything else is derived, so any
process that knows DIR (the command line, the demo, chaos runs, the benchmark) can go on where
another one stopped.

Ports are chosen once, below the kernel's range for outgoing connections. A port inside that range
can be taken by another process's outgoing connection while its store is down. Worse, a client that
redials a dead store can be given the very port it dials, and end up connected to itself.

It only ever signals processes that it can prove to be its own (`store_process`).
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from logservice_client.tls import TlsFiles
from logservice_wire.errors import (
    DeadlineExceeded,
    InvalidArgument,
    LogServiceError,
    NotLeader,
    NotReady,
    ShardClosed,
    ShardDeleted,
    ShardNotFound,
    ShardRestoring,
)
from logservice_wire.rpcs import ADMIT_STORE, CONNECT, GET_CLUSTER_STATE, GET_SHARD_INFO
from logservice_wire.v1 import hakeeper_pb2, log_pb2

from logservice import config as store_config
from logservice.cli.certificates.authority import AUTHORITY_DAYS, Authority
from logservice.cli.ctl.direct_call import Unreachable, call_leader, call_store
from logservice.cli.processes.store_process import StoreProcess
from logservice.cli.processes.toml_text import toml_text
from logservice.cli.shell.private_file import make_private, write_private

Tell = Callable[[str], None]

Sections = Mapping[str, Mapping[str, object]]
"""Configuration by section and key, as in the TOML file."""

ADMIN = "admin"
"""The name of the client that may do everything in a cluster with TLS."""

_TRUST_DOMAIN = "logservice.internal"
_HOSTS = ("localhost", "127.0.0.1")
_TLS_FILES = {
    "client_ca": "client-ca.pem",
    "certificate": "client-plane.pem",
    "key": "client-plane.key",
    "peer_ca": "peer-ca.pem",
    "peer_certificate": "peer-plane.pem",
    "peer_key": "peer-plane.key",
    "client_crl": "client-crl.pem",
    "peer_crl": "peer-crl.pem",
}

_PROBE_TIMEOUT_S = 2.0

_ADMIT_TIMEOUT_S = 60.0

_STOP_TIMEOUT_S = 60.0
"""How long a store may take after SIGTERM before it is killed: it hands its leaderships away and
closes its log, which takes a busy machine a while."""


class ClusterFailed(NotReady):
    """A local cluster did not come up. When a store ended, the message has the end of its log."""


@dataclass(slots=True)
class StorePlace:
    """Where a store listens. `bootstrap`: whether it is one of the initial HAKeeper members.
    `labels`: what its configuration says of where it stands.
    """

    client: str
    peer: str
    admin: str
    bootstrap: bool
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class LocalCluster:
    """A local cluster. `create` makes a new one, and `open` finds one again."""

    directory: Path
    cluster_id: str
    stores: dict[str, StorePlace] = field(default_factory=dict)
    settings: dict[str, dict[str, object]] = field(default_factory=dict)
    tls: bool = False
    """Whether it has TLS, with certificates of its own authority in DIR/certs."""
    last_number: int = 0
    """The highest number of a store so far, so that no other store gets the name of a lost one."""

    @classmethod
    def create(
        cls,
        directory: Path | str,
        *,
        stores: int = 3,
        shards: int = 1,
        zones: int = 0,
        settings: Sections | None = None,
        tls: bool = False,
    ) -> LocalCluster:
        """Lay out a new cluster without starting it. With `zones` store i gets the label zone
        ``z<1 + (i - 1) mod zones>``.

        `settings` override any key of the configuration, e.g. ``{"storage": {"segment_bytes":
        ...}}``. Raises InvalidArgument when DIR holds a cluster already, and ConfigError for wrong
        settings.
        """
        directory = Path(directory).resolve()
        if (directory / "cluster.json").exists():
            raise InvalidArgument(f"{directory} holds a cluster already", field="dir")
        if not 1 <= stores <= 9:
            raise InvalidArgument("a local cluster has 1 to 9 initial stores", field="stores")
        merged = {name: dict(section) for name, section in (settings or {}).items()}
        merged.setdefault("bootstrap", {})
        merged["bootstrap"].setdefault("log_shards", shards)
        merged["bootstrap"].setdefault("replicas", min(stores, 3))
        try:
            make_private(directory)
        except OSError as error:
            raise InvalidArgument(f"cannot create {directory}: {error}", field="dir") from error
        cluster = cls(directory, f"local-{random.getrandbits(32):08x}", {}, merged, tls, stores)
        if tls:
            authority = Authority.create(
                cluster._certs, cluster.cluster_id, _TRUST_DOMAIN, days=AUTHORITY_DAYS
            )
            authority.issue_client(ADMIN)
            merged.setdefault("security", {}).setdefault("admins", [authority.client_uri(ADMIN)])
        for number in range(1, stores + 1):
            store_id = f"store-{number}"
            labels = {"zone": f"z{1 + (number - 1) % zones}"} if zones else {}
            addresses = cluster._new_addresses(store_id)
            cluster.stores[store_id] = StorePlace(*addresses, number <= 3, labels)
        for store_id in cluster.stores:
            cluster._write_config(store_id)
        cluster._save()
        return cluster

    @classmethod
    def open(cls, directory: Path | str) -> LocalCluster:
        """The cluster in DIR. Raises InvalidArgument when there is none."""
        directory = Path(directory).resolve()
        try:
            record = json.loads((directory / "cluster.json").read_text())
            places = {name: StorePlace(**place) for name, place in record["stores"].items()}
            return cls(
                directory,
                record["cluster_id"],
                places,
                record["settings"],
                record["tls"],
                record["last_number"],
            )
        except FileNotFoundError as error:
            raise InvalidArgument(f"no cluster in {directory}", field="dir") from error
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidArgument(
                f"{directory}/cluster.json cannot be read: {error}", field="dir"
            ) from error

    def up(self, timeout_s: float = 60.0, tell: Tell | None = None) -> None:
        """Start what does not run and wait until the first log shard accepts appends."""
        for store_id in self.stores:
            self.start(store_id)
        self.wait_ready(timeout_s, tell=tell)

    def add(self, store_id: str | None = None, *, zone: str = "") -> str:
        """Configure and start one more store; HAKeeper uses it as a spare. Returns its id."""
        if store_id is None:
            self.last_number += 1
            while f"store-{self.last_number}" in self.stores:
                self.last_number += 1
            store_id = f"store-{self.last_number}"
        if store_id in self.stores:
            raise InvalidArgument(f"store {store_id!r} exists", field="store")
        labels = {"zone": zone} if zone else {}
        self.stores[store_id] = StorePlace(*self._new_addresses(store_id), False, labels)
        self._write_config(store_id)
        self._save()
        self.start(store_id)
        return store_id

    def admit(self, store_id: str, timeout_s: float = _ADMIT_TIMEOUT_S) -> None:
        """Let the store have a replica of shard 0 (`logctl admit --hakeeper`). Raises NotReady."""
        request = hakeeper_pb2.AdmitStoreRequest(store_id=store_id, hakeeper=True)
        tls = self.client_tls()
        deadline_s = time.monotonic() + timeout_s
        while True:
            for place in self.stores.values():
                try:
                    call_leader(place.client, ADMIT_STORE, request, _PROBE_TIMEOUT_S, tls)
                except LogServiceError as error:
                    if not error.retryable or time.monotonic() > deadline_s:
                        raise
                else:
                    return
            time.sleep(0.1)

    def start(self, store_id: str) -> int:
        """Start a store that does not run, and return its pid."""
        return self.process(store_id).start()

    def kill(self, store_id: str) -> bool:
        """Send SIGKILL and wait until the process is gone. False when it was not running."""
        process = self.process(store_id)
        sent = process.signal(signal.SIGKILL)
        process.wait_gone(10.0)
        return sent

    def stop(self, store_id: str, timeout_s: float = _STOP_TIMEOUT_S) -> bool:
        """Stop a store with SIGTERM, and kill it when that takes longer than `timeout_s`.

        False when it was not running.
        """
        process = self.process(store_id)
        sent = process.signal(signal.SIGTERM)
        if not process.wait_gone(timeout_s):
            self.kill(store_id)
        return sent

    def down(self) -> None:
        """Stop every store; the data stays."""
        processes = [self.process(store_id) for store_id in self.stores]
        for process in processes:
            process.signal(signal.SIGTERM)
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        for process in processes:
            if not process.wait_gone(max(0.0, deadline - time.monotonic())):
                self.kill(process.store_id)

    def kill_all(self) -> None:
        """Kill every store that runs, all at once; the data stays. Nothing is handed over."""
        processes = [self.process(store_id) for store_id in self.stores]
        for process in processes:
            process.signal(signal.SIGKILL)
        for process in processes:
            process.wait_gone(10.0)

    def forget(self, store_id: str) -> None:
        """Kill a store for good and delete its files, as if its machine were lost."""
        self.kill(store_id)
        directory = self.process(store_id).directory
        del self.stores[store_id]
        self._save()
        shutil.rmtree(directory)

    def environment(self) -> dict[str, str]:
        """What a client's environment has to say: `logservice_client.environment` reads it."""
        variables = {"LOGSERVICE_ENDPOINTS": ",".join(self.endpoints())}
        if self.tls:
            files = zip(("CA", "CERT", "KEY"), self.client_files(), strict=True)
            variables |= {f"LOGSERVICE_TLS_{name}": str(path) for name, path in files}
        return variables

    def endpoints(self) -> list[str]:
        """Client addresses of all stores, running or not."""
        return [place.client for place in self.stores.values()]

    def pids(self) -> dict[str, int | None]:
        """The pid of each store; None when it does not run."""
        return {store_id: self.process(store_id).pid() for store_id in self.stores}

    def client_tls(self, client: str = ADMIN) -> TlsFiles | None:
        """What `client` presents and trusts; None for a cluster without TLS."""
        return TlsFiles(*map(str, self.client_files(client))) if self.tls else None

    def client_files(self, client: str = ADMIN) -> tuple[Path, Path, Path]:
        """CA, certificate and key of a client. They are issued at the first call."""
        folder = self._certs / "clients" / client
        if not folder.exists():
            Authority.open(self._certs).issue_client(client)
        return folder / "ca.pem", folder / "client.pem", folder / "client.key"

    @property
    def _certs(self) -> Path:
        return self.directory / "certs"

    def process(self, store_id: str) -> StoreProcess:
        """The process of a store. Raises InvalidArgument for a store this cluster does not have."""
        if store_id not in self.stores:
            known = ", ".join(self.stores)
            raise InvalidArgument(f"no store {store_id!r}; there are: {known}", field="store")
        return StoreProcess(store_id, self.directory / store_id)

    def wait_ready(
        self, timeout_s: float = 60.0, shard: int = 1, *, tell: Tell | None = None
    ) -> None:
        """Wait until `shard` accepts appends through any store. When HAKeeper, running, has no such
        log, or the log was closed or deleted, or is being restored, that is ready, too: there is
        nothing to wait for. `tell` is given what is waited for, each time that this changes.

        Raises ClusterFailed when a store process ended, or when the time is up.
        """
        deadline = time.monotonic() + timeout_s
        told = ""
        while wanted := self._waits_for(shard):
            if tell is not None and wanted != told:
                tell(wanted)
            told = wanted
            for store_id, pid in self.pids().items():
                if pid is None:
                    lines = self.process(store_id).last_lines()
                    raise ClusterFailed(f"{store_id} ended:\n{lines}", store=store_id)
            if time.monotonic() > deadline:
                raise ClusterFailed(
                    f"shard {shard} accepts no appends after {timeout_s:g} s; it still waits for "
                    f"{wanted}"
                )
            time.sleep(0.05)

    def _waits_for(self, shard: int) -> str:
        """What has to happen next before `shard` accepts appends; "" when it does."""
        tls = self.client_tls()
        silent: list[str] = []
        wanted = ""
        for store_id, place in self.stores.items():
            try:
                wanted = _missing(place.client, shard, tls)
            except (Unreachable, DeadlineExceeded):
                silent.append(store_id)
            else:
                if not wanted:
                    return ""
        return wanted or f"{' or '.join(silent)} to answer"

    def _new_addresses(self, store_id: str) -> tuple[str, str, str]:
        """Where a new store listens for clients, for stores and for administration."""
        client, peer, admin = (f"127.0.0.1:{port}" for port in free_ports(3))
        return client, peer, admin

    def _write_config(self, store_id: str) -> None:
        place = self.stores[store_id]
        # These are the initial members. When all of them are gone, the other stores are a way to
        # find HAKeeper.
        first = {name: other for name, other in self.stores.items() if other.bootstrap} or {
            name: other for name, other in self.stores.items() if name != store_id
        }
        members = [{"store_id": name, "peer_address": other.peer} for name, other in first.items()]
        sections: dict[str, dict[str, object]] = {
            "store": {
                "store_id": store_id,
                "cluster_id": self.cluster_id,
                "data_directories": ["data"],
            },
            "listen": {"client": place.client, "peer": place.peer},
            "admin": {"listen": place.admin},
            "bootstrap": {"hakeeper_members": members},
        }
        if self.tls:
            hosts = dict.fromkeys([*_HOSTS, place.client.rpartition(":")[0]])
            Authority.open(self._certs).issue_store(store_id, list(hosts))
            folder = f"../certs/stores/{store_id}"
            sections["tls"] = {key: f"{folder}/{name}" for key, name in _TLS_FILES.items()}
        else:
            sections["listen"]["insecure_plaintext"] = True
        if place.labels:
            sections["store"]["labels"] = place.labels
        for name, section in self.settings.items():
            sections.setdefault(name, {}).update(section)
        text = toml_text(sections)
        store_config.parse(text)
        process = self.process(store_id)
        write_private(process.config_path, text.encode())

    def _save(self) -> None:
        record = {
            "cluster_id": self.cluster_id,
            "settings": self.settings,
            "tls": self.tls,
            "last_number": self.last_number,
            "stores": {
                name: {
                    "client": place.client,
                    "peer": place.peer,
                    "admin": place.admin,
                    "bootstrap": place.bootstrap,
                    # A cluster without zones can be opened by release 0.1.0, too.
                    **({"labels": place.labels} if place.labels else {}),
                }
                for name, place in self.stores.items()
            },
        }
        text = json.dumps(record, indent=2) + "\n"
        write_private(self.directory / "cluster.json", text.encode())


_PORTS = 16_000
"""How many ports below the outgoing range are drawn from."""

_drawn = itertools.count(int(os.getpid() * 0.618034 % 1 * _PORTS))
"""Processes begin far from each other, and none draws a port again before it has drawn all of
them, because the port of a store that is down, or not up yet, looks free to every other process."""


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that no process listens on, outside the outgoing range."""
    try:
        lowest_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError):
        lowest_outgoing = 32_768
    candidates = range(max(1024, lowest_outgoing - _PORTS), lowest_outgoing)
    ports: list[int] = []
    with ExitStack() as held:
        for _ in candidates:
            port = candidates[next(_drawn) % len(candidates)]
            probe = held.enter_context(socket.socket())
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            ports.append(port)
            if len(ports) == count:
                return ports
    raise NotReady("no free ports")


def _missing(address: str, shard: int, tls: TlsFiles | None) -> str:
    """What the store lacks before `shard` accepts appends; "" for nothing.

    Raises Unreachable or DeadlineExceeded.
    """
    request = log_pb2.ConnectRequest(shard_id=shard)
    try:
        call_store(address, CONNECT, request, _PROBE_TIMEOUT_S, tls)
    except (ShardClosed, ShardDeleted, ShardRestoring):
        return ""
    except ShardNotFound:
        return "" if _lacks(address, shard, tls) else f"HAKeeper to make log {shard}"
    except (Unreachable, DeadlineExceeded):
        raise
    except (NotLeader, NotReady):
        return f"log {shard} to have a leader"
    except LogServiceError as error:
        return f"log {shard} to accept appends: {error}"
    return ""


def _lacks(address: str, shard: int, tls: TlsFiles | None) -> bool:
    """Whether HAKeeper runs, and has no such log."""
    try:
        # A first start may make thousands of logs, and to list them all is work for the stores.
        about = hakeeper_pb2.GetShardInfoRequest(shard_id=shard)
        call_store(address, GET_SHARD_INFO, about, _PROBE_TIMEOUT_S, tls)
        return False
    except (ShardNotFound, ShardDeleted):
        pass
    except LogServiceError:
        return False
    request = hakeeper_pb2.GetClusterStateRequest()
    try:
        state = call_leader(address, GET_CLUSTER_STATE, request, _PROBE_TIMEOUT_S, tls)
    except LogServiceError:
        return False
    return state.state == "running" and all(one.shard_id != shard for one in state.shards)
