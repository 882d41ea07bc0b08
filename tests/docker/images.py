"""images: the image under test, and the images that tests make from it or need beside it."""

from __future__ import annotations

import io
import shutil
import tarfile
from pathlib import Path

from tests.docker.engine import Engine

ROOT = Path(__file__).parents[2]
DEFAULT_BASE = "python:3.12-slim-bookworm"
"""The image that deploy/Dockerfile builds from by default."""
IMAGE = "logservice"


def build_image(engine: Engine, base: str) -> str:
    """Build deploy/Dockerfile as it is.

    In this engine only, the base gets the name of the default one: `docker build` then finds all
    layers built already, also where a build cannot reach the network.
    """
    engine.client.images.get(base).tag(*DEFAULT_BASE.split(":"))
    engine.client.images.build(
        path=str(ROOT), dockerfile="deploy/Dockerfile", tag=IMAGE, network_mode="host", rm=True
    )
    return IMAGE


def derived_image(engine: Engine, tag: str, dockerfile: str, *files: Path) -> str:
    """Build an image from the lines of a Dockerfile and files that lie beside it."""
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
    """An image with Debian's prometheus where the official image has it."""
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
    """The image under test with a later version: an upgrade as a cluster sees it."""
    metadata = "/opt/logservice/lib/python3*/site-packages/logservice-[0-9]*.dist-info/METADATA"
    return derived_image(
        engine,
        f"{IMAGE}:{version}",
        f"FROM {IMAGE}\nUSER 0:0\nRUN sed -i 's/^Version: .*/Version: {version}/' {metadata}\n"
        "USER 10001:10001\n",
    )
