"""Through Spark Connect: the session is elsewhere, the source and the writer are the same."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from logservice_client.testing import local_cluster

pytestmark = pytest.mark.spark

RECORDS = [b"record %d" % number for number in range(20)]


def test_reading_and_writing_through_spark_connect(spark_environment: None, tmp_path: Path) -> None:
    with local_cluster(stores=3) as cluster, cluster.client() as client:
        source, target = client.hakeeper.create_shard(), client.hakeeper.create_shard()
        for record in RECORDS:
            client.shard(source).append(record)
        words = [",".join(cluster.endpoints), str(source), str(target), str(tmp_path)]
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.connect_program", *words],
            cwd=Path(__file__).parents[2],
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
    assert "unknown option 'startinglns'; did you mean 'startingLsn'?" in found["refused"]
    values = Counter(record for _, record in written.elements())
    assert values == Counter(RECORDS) + Counter(RECORDS[1::2])
