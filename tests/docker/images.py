"""images: the image under test, and what tests make from it or need beside it."""

from __future__ import annotations

import io
import shutil
import tarfile
from pathlib import Path

from tests.docker.engine import Engine

ROOT = Path(__file__).parents[2]
DEFAULT_BASE = "python:3.12-slim-bookworm"
"""What deploy/Dockerfile builds from unless told otherwise."""
IMAGE = "logservice"


def build_image(engine: Engine, base: str) -> str:
    """deploy/Dockerfile, as it is.

    The base gets the name of the default one, in this engine only: `docker build` then finds all of
    the image built already, where the network is not to be had for a build without more ado.
    """
    engine.client.images.get(base).tag(*DEFAULT_BASE.split(":"))
    engine.client.images.build(
        path=str(ROOT), dockerfile="deploy/Dockerfile", tag=IMAGE, network_mode="host", rm=True
    )
    return IMAGE


def derived_image(engine: Engine, tag: str, dockerfile: str, *files: Path) -> str:
    """An image from a few lines and files, which lie beside them under their names."""
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as archive:
        content = dockerfile.encode()
        entry = tarfile.TarInfo("Dockerfile")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
        for file in files:
            archive.add(file, file.name)
    context.seek(0)
    engine.client.images.build(
        fileobj=context, custom_context=True, tag=tag, rm=True, network_mode="none"
    )
    return tag


def prometheus_image(engine: Engine) -> str:
    """Debian's program in the place where the official image has it."""
    program = shutil.which("prometheus")
    assert program is not None, "make test-docker installs prometheus"
    return derived_image(
        engine,
        "prometheus:test",
        f"FROM {DEFAULT_BASE}\nCOPY prometheus /bin/prometheus\nWORKDIR /prometheus\n"
        'ENTRYPOINT ["/bin/prometheus", "--config.file=/etc/prometheus/prometheus.yml"]\n',
        Path(program).resolve(),
    )


def next_version(engine: Engine, version: str) -> str:
    """The image under test as a later version of itself would look to a cluster."""
    metadata = "/opt/logservice/lib/python3*/site-packages/logservice-[0-9]*.dist-info/METADATA"
    return derived_image(
        engine,
        f"{IMAGE}:{version}",
        f"FROM {IMAGE}\nUSER 0:0\nRUN sed -i 's/^Version: .*/Version: {version}/' {metadata}\n"
        "USER 10001:10001\n",
    )
