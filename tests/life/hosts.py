"""Hosts: a cluster whose stores have a host each, joined by a switch.

A host is a network namespace with one link to a bridge. So a link can be cut while the process runs
on: packets get lost in silence, and nobody is told that a connection is over, as when a cable is
pulled. Stores of different hosts can reach each other by nothing but these links, and so they speak
TLS.

All of it lies in a network and a mount namespace that `enter` makes, and is gone with the last
process in it. Nothing there leads out of this machine. `refusal` says where a machine does not
permit that.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Final

from logservice.cli.processes.local_cluster import LocalCluster
from logservice.cli.processes.store_process import StoreProcess

_INSIDE: Final = "LOGSERVICE_LIFE_INSIDE"
_BRIDGE: Final = "switch"
_NETWORK: Final = "198.18.0"
"""Addresses for tests of networks (RFC 2544)."""

_DELAY: Final = ("delay", "5ms", "2ms", "loss", "0.5%")
"""What every link does to packets where the kernel has netem: twice a round trip of a city."""


def refusal() -> str:
    """Why there can be no hosts here; empty when there can be."""
    for program in ("unshare", "ip", "mount"):
        if shutil.which(program) is None:
            return f"there is no program `{program}`"
    try:
        _run("unshare", "--net", "--mount", "ip", "link", "add", _BRIDGE, "type", "bridge")
    except OSError as error:
        return str(error)
    return ""


def enter() -> None:
    """Begin this program again in namespaces of its own; returns there."""
    if _INSIDE not in os.environ:
        again = ("unshare", "--net", "--mount", "--", sys.executable, "-m", "tests.life")
        os.execvpe(again[0], [*again, *sys.argv[1:]], {**os.environ, _INSIDE: "1"})


class Network:
    """The switch and its links."""

    def __init__(self) -> None:
        """Only after `enter`."""
        os.makedirs("/run/netns", exist_ok=True)
        _run("mount", "-t", "tmpfs", "none", "/run/netns")
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "link", "add", _BRIDGE, "type", "bridge")
        _run("ip", "address", "add", f"{_NETWORK}.1/24", "dev", _BRIDGE)
        _run("ip", "link", "set", _BRIDGE, "up")
        self._links: dict[str, str] = {}
        self.shaped = "no delay, no loss: this kernel has no netem"
        """What links do to packets, in words."""

    def host(self, store: str) -> str:
        """A new host for a store; its address."""
        number = len(self._links) + 1
        link = self._links[store] = f"h{number}"
        address = f"{_NETWORK}.{10 + number}"
        _run("ip", "netns", "add", link)
        _run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", link)
        _run("ip", "link", "set", link, "master", _BRIDGE, "up")
        for device in ("lo", "eth0"):
            _run("ip", "-n", link, "link", "set", device, "up")
        _run("ip", "-n", link, "address", "add", f"{address}/24", "dev", "eth0")
        with contextlib.suppress(OSError):
            _run("tc", "qdisc", "add", "dev", link, "root", "netem", *_DELAY)
            self.shaped = " ".join(_DELAY)
        return address

    def within(self, store: str) -> list[str]:
        """What a command begins with that runs on the store's host."""
        return ["ip", "netns", "exec", self._links[store]]

    def cut(self, store: str) -> None:
        """Packets of this host get lost from now on, both ways."""
        _run("ip", "link", "set", self._links[store], "down")

    def heal(self, store: str) -> None:
        """Packets pass again."""
        _run("ip", "link", "set", self._links[store], "up")


@dataclass(frozen=True, slots=True)
class HostProcess(StoreProcess):
    """A store process on a host."""

    within: tuple[str, ...]

    @property
    def command(self) -> list[str]:
        return [*self.within, *super(HostProcess, self).command]


@dataclass(slots=True)
class HostedCluster(LocalCluster):
    """A local cluster with a host for each store."""

    network: Network = field(default_factory=Network)

    def _new_addresses(self, store_id: str) -> tuple[str, str, str]:
        address = self.network.host(store_id)
        return f"{address}:7001", f"{address}:7002", "127.0.0.1:7003"

    def process(self, store_id: str) -> StoreProcess:
        found = super(HostedCluster, self).process(store_id)
        within = tuple(self.network.within(store_id))
        return HostProcess(found.store_id, found.directory, within)


def _run(*command: str) -> None:
    """Run a command. Raises OSError with what it says."""
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode != 0:
        raise OSError(f"`{' '.join(command)}`: {found.stderr.strip()}")
