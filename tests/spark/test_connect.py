"""Through Spark Connect: the session is elsewhere, the source and the writer are the same."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from logservice_client.testing import local_cluster

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
RECORDS = [b"record %d" % number for number in range(20)]


def test_reading_and_writing_through_spark_connect(tmp_path: Path) -> None:
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs a Java runtime")
    with local_cluster(stores=3) as cluster, cluster.client() as client:
        source, target = client.hakeeper.create_shard(), client.hakeeper.create_shard()
        for record in RECORDS:
            client.shard(source).append(record)
        words = [",".join(cluster.endpoints), str(source), str(target), str(tmp_path)]
        paths = [ROOT / "client", ROOT, *filter(None, [os.environ.get("PYTHONPATH")])]
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.connect_program", *words],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        found = json.loads(done.stdout.splitlines()[-1])
        written = Counter(client.shard(target).records(1, until_tail=True))
    assert found["session"].startswith("pyspark.sql.connect")
    assert (found["count"], found["pushed"]) == (len(RECORDS), 3)
    assert found["bytes"] == sum(map(len, RECORDS))
    assert "unknown option 'startinglns'" in found["refused"]
    values = Counter(record for _, record in written.elements())
    assert values == Counter(RECORDS) + Counter(RECORDS[1::2])
