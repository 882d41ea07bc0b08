"""One Spark session for all tests: a JVM takes seconds to start and a gigabyte to run."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.client.fake_server import FakeCluster
from tests.client.running_fake import running_fake
from tests.spark.patience import quick_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def with_delta() -> dict[str, str]:
    """What makes a Spark one with Delta, where its jars are there (`make test-spark-4.2`)."""
    jars = os.environ.get("LOGSERVICE_DELTA_JARS", "")
    if not jars:
        return {}
    return {
        "spark.jars": ",".join(str(jar) for jar in sorted(Path(jars).glob("*.jar"))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",
    }


@pytest.fixture(scope="session")
def spark_environment(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What a Spark needs, in this process or one that it starts: Java, and where things are."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs a Java runtime")
    os.environ["PYSPARK_PYTHON"] = quick_python(tmp_path_factory.mktemp("python"))
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    root = Path(__file__).parents[2]
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(root / "client"), str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    )


@pytest.fixture(scope="session")
def spark(
    spark_environment: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for name, value in with_delta().items():
        builder = builder.config(name, value)
    session = (
        builder.master("local[2]")
        .appName("logservice tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with running_fake(stores=3) as cluster:
        yield cluster
