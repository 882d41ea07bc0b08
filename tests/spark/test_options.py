"""Options of the data source: every one is read, every mistake is named."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pyspark_logservice.options import (
    EARLIEST,
    KNOWN,
    LATEST,
    OptionError,
    parse_options,
)

REQUIRED = {"logservice.endpoints": "a:1,b:2", "shard": "3"}


def test_defaults() -> None:
    options = parse_options(REQUIRED)
    assert options.endpoints == "a:1,b:2"
    assert options.shards == (3,)
    assert (options.starting.of(3), options.ending.of(3)) == (EARLIEST, LATEST)
    assert options.fail_on_data_loss
    assert not options.include_gaps


def test_everything() -> None:
    options = parse_options(
        {
            "logservice.endpoints": "a:1",
            "logservice.RPC.timeout": "2.5",
            "logservice.tls.ca": "ca.pem",
            "logservice.tls.cert": "cert.pem",
            "logservice.tls.key": "key.pem",
            "SHARDS": "2, 1,2",
            "startingOffsets": '{"1": 23, "2": -2}',
            "endingOffsets": '{"1": 99, "2": -1}',
            "minPartitions": "7",
            "maxRecordsPerPartition": "10",
            "maxBytesPerRead": "1000",
            "failOnDataLoss": "False",
            "includeGaps": "TRUE",
        }
    )
    assert options.shards == (1, 2)
    assert [options.starting.of(shard) for shard in (1, 2, 3)] == [23, EARLIEST, EARLIEST]
    assert [options.ending.of(shard) for shard in (1, 2, 3)] == [99, LATEST, LATEST]
    assert (options.partitions_min, options.partition_records_max) == (7, 10)
    assert (options.bytes_per_read, options.rpc_timeout_s) == (1000, 2.5)
    assert (options.fail_on_data_loss, options.include_gaps) == (False, True)
    assert (options.tls_ca, options.tls_certificate, options.tls_key) == (
        "ca.pem",
        "cert.pem",
        "key.pem",
    )
    assert pickle.loads(pickle.dumps(options)) == options


def test_all_shards_and_lsn_aliases() -> None:
    options = parse_options(
        {"logservice.endpoints": "a:1", "shards": "*", "startingLsn": "5", "endingLsn": "latest"}
    )
    assert options.shards is None
    assert options.starting.of(9) == 5
    assert options.ending.of(9) == LATEST


def test_times_are_milliseconds() -> None:
    options = parse_options(
        {**REQUIRED, "startingTimestamp": "1795624800000", "endingTimestamp": "1795624800001"}
    )
    assert options.starting_time_us == 1_795_624_800_000_000
    assert options.ending_time_us == 1_795_624_800_001_000


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"logservice.endpoints": " "}, "logservice.endpoints"),
        ({"shards": "1"}, "exactly one"),
        ({"shard": "1,,2"}, "shards"),
        ({"shard": "0"}, "numbered from 1"),
        ({"startingLsn": "0"}, "startingLsn"),
        ({"startingLsn": "-1"}, "startingLsn"),
        ({"startingLsn": "latest"}, "startingLsn"),
        ({"endingLsn": "earliest"}, "endingLsn"),
        ({"endingOffsets": '{"1": -2}'}, "endingOffsets"),
        ({"endingOffsets": "[1]"}, "endingOffsets"),
        ({"endingOffsets": "{"}, "endingOffsets"),
        ({"startingOffsets": '{"a": 1}'}, "startingOffsets"),
        ({"startingLsn": "1", "startingOffsets": "earliest"}, "exclude"),
        ({"startingTimestamp": "5", "startingLsn": "1"}, "startingTimestamp"),
        ({"endingTimestamp": "5", "endingOffsets": "latest"}, "endingTimestamp"),
        ({"startingTimestamp": "0"}, "startingTimestamp"),
        ({"endingTimestamp": "2026-11-25"}, "endingTimestamp"),
        ({"endingTimestamp": str(2**60)}, "endingTimestamp"),
        ({"minPartitions": "0"}, "minpartitions"),
        ({"maxBytesPerRead": "-5"}, "maxbytesperread"),
        ({"failOnDataLoss": "yes"}, "failondataloss"),
        ({"logservice.rpc.timeout": "soon"}, "logservice.rpc.timeout"),
        ({"logservice.rpc.timeout": "inf"}, "logservice.rpc.timeout"),
        ({"maxRecordsPerTriger": "5"}, "maxrecordspertriger"),
    ],
)
def test_mistakes_are_named(given: dict[str, str], word: str) -> None:
    with pytest.raises(OptionError, match=word.replace(".", r"\.")):
        parse_options({**REQUIRED, **given})


def test_a_shard_is_required() -> None:
    with pytest.raises(OptionError, match="shard"):
        parse_options({"logservice.endpoints": "a:1"})


def test_the_document_names_every_option() -> None:
    text = (Path(__file__).parents[2] / "docs/spark.md").read_text().lower()
    assert [name for name in KNOWN if f"`{name}`" not in text] == []


@pytest.mark.parametrize(
    ("given", "log", "shards"),
    [("wal-1", "wal-1", ()), (" wal-1 ", "wal-1", ()), ("7", "", (7,)), ("1,2", "", (1, 2))],
)
def test_a_log_is_read_by_name(given: str, log: str, shards: tuple[int, ...]) -> None:
    options = parse_options({**REQUIRED, "shard": given})
    assert (options.log, options.shards) == (log, shards)
