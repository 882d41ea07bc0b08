"""One engine and one image for all tests of this folder.

Where no engine starts, the tests are skipped and say why; with `LOGSERVICE_REQUIRE_DOCKER=1` they
fail instead.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker.base_image import base_image
from tests.docker.engine import Engine, NoEngine
from tests.docker.images import build_image


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The SDK leaves its pooled connections to the garbage collector, which warns of them."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(
                pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
            )
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"))


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    try:
        running = Engine()
    except NoEngine as error:
        _cannot(error)
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="session")
def base(engine: Engine) -> str:
    try:
        return base_image(engine)
    except NoEngine as error:
        _cannot(error)
        raise


@pytest.fixture(scope="session")
def image(engine: Engine, base: str) -> str:
    """The image that deploy/Dockerfile builds from this tree."""
    return build_image(engine, base)


def _cannot(error: NoEngine) -> None:
    if os.environ.get("LOGSERVICE_REQUIRE_DOCKER") == "1":
        pytest.fail(f"no docker engine can be used here: {error}")
    pytest.skip(f"no docker engine can be used here: {error}")
