"""Engine: a docker engine of the test's own, started, used and removed again.

It shares nothing with an engine that the machine may have: it has its own socket, root directory,
containerd and networks, all below one folder. It makes no firewall rules and no default bridge, so
that it leaves nothing behind on the host. Containers reach each other, and this process reaches
them, over internal networks that a test makes and removes; none of them leads outside.

It needs root and the programs of Debian's docker.io. `start` says in words what is missing.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import docker
import docker.errors

_START_S = 60.0
_STOP_S = 60.0


class NoEngine(Exception):
    """No engine can be started here; the message says why."""


class Engine:
    """A docker engine. `client` speaks to it; `folder` holds what containers get from the host."""

    def __init__(self) -> None:
        """Raises NoEngine."""
        if os.geteuid() != 0:
            raise NoEngine("starting a docker engine needs root")
        for program in ("dockerd", "containerd", "runc"):
            if shutil.which(program) is None:
                raise NoEngine(f"{program} is not installed (Debian: docker.io)")
        # The name is short, because a socket's path may have only 107 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="logservice-docker-"))
        self.host = f"unix://{self.folder}/docker.sock"
        self._log = self.folder / "dockerd.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    "dockerd",
                    "--host",
                    self.host,
                    "--data-root",
                    f"{self.folder}/data",
                    "--exec-root",
                    f"{self.folder}/exec",
                    "--pidfile",
                    f"{self.folder}/pid",
                    "--iptables=false",
                    "--ip6tables=false",
                    "--ip-forward=false",
                    "--bridge=none",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.client = docker.DockerClient(base_url=self.host, version="1.41", timeout=300)
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise

    def environment(self) -> dict[str, str]:
        """The environment for programs that speak to the engine: docker, docker-compose."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DOCKER")}
        # docker's settings are this folder's, and not those of whoever runs the tests.
        return {**kept, "DOCKER_HOST": self.host, "DOCKER_CONFIG": str(self.folder / "config")}

    def stop(self) -> None:
        """Remove all containers, end the engine, and delete its files."""
        if self._process.poll() is None:
            try:
                for container in self.client.containers.list(all=True):
                    container.remove(force=True, v=True)
                self.client.networks.prune()
            except (docker.errors.APIError, OSError):
                pass  # it goes down anyhow; the folder's removal below is what is checked
            self._process.send_signal(signal.SIGTERM)
        self.client.close()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        # The engine leaves the mount of its own network namespace; others may be going now.
        for mount in self._mounts():
            subprocess.run(["umount", "--lazy", mount], check=False)
        assert self._mounts() == []
        shutil.rmtree(self.folder)

    def _mounts(self) -> list[str]:
        """The mounts below its folder, the innermost first."""
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        here = [one for one in mounts if one.startswith(f"{self.folder}/")]
        return sorted(here, key=len, reverse=True)

    def _wait(self) -> None:
        deadline = time.monotonic() + _START_S
        while True:
            try:
                self.client.ping()
                return
            except (docker.errors.DockerException, OSError):
                pass  # not yet
            if self._process.poll() is not None or time.monotonic() > deadline:
                lines = self._log.read_text(errors="replace").splitlines()[-5:]
                raise NoEngine("dockerd does not come up here:\n" + "\n".join(lines))
            time.sleep(0.1)
