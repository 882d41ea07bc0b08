"""base_image: an image to build from where none can be pulled.

`LOGSERVICE_DOCKER_BASE` names an image to pull instead. Otherwise debootstrap makes a minimal
Debian with Python, which is imported. The archive is kept in the system's temporary folder, because
making it takes a minute and a half.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.docker.engine import Engine, NoEngine

_SUITE = "bookworm"
_TAG = "logservice-base:test"
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
_NOT_NEEDED = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale")


def base_image(engine: Engine) -> str:
    """The name of an image with Python 3.11 or newer. Raises NoEngine."""
    named = os.environ.get("LOGSERVICE_DOCKER_BASE")
    if named:
        engine.client.images.pull(named)
        return named
    name, _, tag = _TAG.partition(":")
    # The machine may reach registries through a proxy whose authority pip's own list lacks.
    trusted = f"ENV PIP_CERT={_CERTIFICATES}"
    engine.client.api.import_image_from_file(
        str(_archive()), repository=name, tag=tag, changes=[trusted]
    )
    return _TAG


def _archive() -> Path:
    folder = Path(tempfile.gettempdir()) / f"logservice-docker-base-{os.geteuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.geteuid() or folder.is_symlink():
        raise NoEngine(f"{folder} belongs to somebody else")
    archive = folder / f"{_SUITE}.tar"
    if not archive.exists():
        _make(folder, archive)
    return archive


def _make(folder: Path, archive: Path) -> None:
    if shutil.which("debootstrap") is None:
        raise NoEngine("debootstrap is not installed, and LOGSERVICE_DOCKER_BASE names no image")
    tree = Path(tempfile.mkdtemp(dir=folder))
    try:
        _run(
            "debootstrap",
            "--variant=minbase",
            "--include=python3,python3-venv",
            _SUITE,
            str(tree),
        )
        for name in _NOT_NEEDED:
            shutil.rmtree(tree / name, ignore_errors=True)
        trusted = os.environ.get("SSL_CERT_FILE", _CERTIFICATES)
        shutil.copyfile(trusted, tree / _CERTIFICATES.lstrip("/"))
        new = folder / f"{tree.name}.new"  # another run may be making it, too
        _run("tar", "--numeric-owner", "-C", str(tree), "-cf", str(new), ".")
        new.replace(archive)
    finally:
        shutil.rmtree(tree, ignore_errors=True)
        (folder / f"{tree.name}.new").unlink(missing_ok=True)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoEngine(f"{command[0]} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
