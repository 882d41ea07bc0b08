"""Options of the data source: every one is read, every mistake is named."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest
from pyspark_logservice.checks import EARLIEST, LATEST, OptionError
from pyspark_logservice.options import (
    COLUMNS,
    KNOWN,
    ReadOptions,
    Use,
    check_named,
    parse_options,
)

NOW, LATER = "1795624800000", "1795624800001"

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
    options = parse_options({**REQUIRED, "startingTimestamp": NOW, "endingTimestamp": LATER})
    assert options.starting_time_us == 1_795_624_800_000_000
    assert options.ending_time_us == 1_795_624_800_001_000


@pytest.mark.parametrize(
    ("text", "time_us"),
    [
        ("2026-11-25T10:00:00Z", 1_795_600_800_000_000),
        ("2026-11-25T10:00:00+02:00", 1_795_593_600_000_000),
        (" 2026-11-25 10:00:00.000001Z ", 1_795_600_800_000_001),
        ("100000000000", 100_000_000_000_000),
        ("99999999999999", 99_999_999_999_999_000),
    ],
)
def test_times_in_iso_or_milliseconds(text: str, time_us: int) -> None:
    options = parse_options({**REQUIRED, "startingTimestamp": text})
    assert options.starting_time_us == time_us


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"logservice.endpoints": " "}, "logservice.endpoints"),
        ({"shards": "1"}, "exactly one"),
        ({"shard": "1,,2"}, "'' is neither an id nor the name"),
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
        ({"startingTimestamp": NOW, "startingLsn": "1"}, "'startingTimestamp' and"),
        ({"endingTimestamp": NOW, "endingOffsets": "latest"}, "'endingTimestamp' and"),
        ({"startingTimestamp": "0"}, "startingTimestamp"),
        ({"startingTimestamp": "1795624800"}, "1795624800 is seconds: a number is milliseconds"),
        ({"startingTimestamp": "99999999999"}, "is seconds"),
        ({"startingTimestamp": "100000000000000"}, "is no milliseconds"),
        ({"startingTimestamp": "1795624800000000"}, "is no milliseconds"),
        ({"startingTimestamp": "yesterday"}, "'yesterday' is not a time. Write 2026-11-29T"),
        ({"startingTimestamp": "2026-11-25T10:00:00"}, "has no time zone"),
        ({"startingTimestamp": "1969-12-31T23:59:59Z"}, "is before 1970"),
        ({"startingTimestamp": "1970-01-01T00:00:00Z"}, "is before 1970"),
        ({"subscribe": "orders"}, "'subscribe': what Kafka's calls so is 'shards' here"),
        ({"kafka.bootstrap.servers": "a:1"}, "is 'logservice.endpoints' here"),
        ({"maxOffsetsPerTrigger": "5"}, "is 'maxRecordsPerTrigger' here"),
        ({"zzz": "5"}, "unknown option 'zzz'; there are: logservice.endpoints, "),
        ({"endingTimestamp": "2026-11-25"}, "endingTimestamp"),
        ({"endingTimestamp": str(2**60)}, "endingTimestamp"),
        ({"minPartitions": "0"}, "minPartitions"),
        ({"maxBytesPerRead": "-5"}, "maxBytesPerRead"),
        ({"failOnDataLoss": "yes"}, "failOnDataLoss"),
        ({"logservice.rpc.timeout": "soon"}, "logservice.rpc.timeout"),
        ({"logservice.rpc.timeout": "inf"}, "logservice.rpc.timeout"),
        (
            {"maxRecordsPerTriger": "5"},
            "'maxRecordsPerTriger'; did you mean 'maxRecordsPerTrigger'?",
        ),
        ({"shard": "-3"}, "shard"),
        ({"shard": "1.5"}, "shard"),
        ({"startingLsn": "1_000"}, "startingLsn"),
        ({"startingLsn": "+5"}, "startingLsn"),
        ({"startingLsn": "\u0665"}, "startingLsn"),
        ({"startingLsn": str(2**63)}, "startingLsn"),
        ({"startingOffsets": '{"3": 7.0}'}, "startingOffsets': shard 3: 7.0"),
        ({"startingOffsets": '{"3": true}'}, "startingOffsets': shard 3: true"),
        ({"startingOffsets": '{"3": "7"}'}, "startingOffsets': shard 3"),
        ({"startingOffsets": '{"3": {"a": 1}}'}, "startingOffsets': shard 3"),
        ({"startingOffsets": '{"3": 5, "3": 7}'}, "shard 3 is there twice"),
        ({"startingOffsets": '{"03": 5}'}, "'03' is not the id"),
        ({"startingOffsets": ""}, "startingOffsets"),
        ({"startingLsn": "5", "endingLsn": "3"}, "begins at LSN 5 and ends before LSN 3"),
        ({"startingLsn": "5", "endingOffsets": '{"3": 3}'}, "range of shard 3 begins at LSN 5"),
        (
            {"startingTimestamp": "1795624800001", "endingTimestamp": NOW},
            "endingTimestamp",
        ),
        ({"maxBytesPerRead": str(2**32)}, "maxBytesPerRead"),
        ({"columns": "lsn,lsn"}, "columns"),
        ({"columns": "gap"}, "columns"),
        ({"columns": ""}, "columns"),
        ({"columns": "*,value"}, "columns"),
        ({"columns": "*,*"}, "columns"),
        ({"columns": "*,timestampType"}, "term, timestamp, value, key, headers, record_time"),
        ({"archive": "/a", "columns": "term"}, "columns"),
        ({"columns": "lsn", "includeValue": "false"}, "exclude"),
    ],
)
def test_mistakes_are_named(given: dict[str, str], word: str) -> None:
    with pytest.raises(OptionError, match=re.escape(word)):
        parse_options({**REQUIRED, **given})


def test_a_shard_is_required() -> None:
    with pytest.raises(OptionError, match="shard"):
        parse_options({"logservice.endpoints": "a:1"})


def test_the_document_names_every_option() -> None:
    text = (Path(__file__).parents[2] / "docs/spark.md").read_text().lower()
    assert [name for name in KNOWN if f"`{name.lower()}`" not in text] == []


@pytest.mark.parametrize(
    ("given", "names", "shards"),
    [
        ("wal-1", ("wal-1",), ()),
        (" wal-1 ", ("wal-1",), ()),
        ("7", (), (7,)),
        ("1,2", (), (1, 2)),
        ("9, wal-*,3,shop,9,shop", ("wal-*", "shop"), (3, 9)),
    ],
)
def test_logs_are_read_by_id_by_name_and_by_pattern(
    given: str, names: tuple[str, ...], shards: tuple[int, ...]
) -> None:
    options = parse_options({**REQUIRED, "shard": given})
    assert (options.names, options.shards) == (names, shards)


def streaming(**given: str) -> ReadOptions:
    return parse_options({**REQUIRED, **given}, Use.STREAM)


def test_options_of_a_stream() -> None:
    options = streaming(startingOffsets='{"3": -1}', maxRecordsPerTrigger="7")
    assert (options.starting.of(3), options.trigger_records_max) == (LATEST, 7)
    assert streaming(startingLsn="latest", maxBytesPerTrigger="9").trigger_bytes == 9
    with pytest.raises(OptionError, match="a stream has no end"):
        streaming(endingLsn="5")
    with pytest.raises(OptionError, match="a batch query has no triggers"):
        parse_options({**REQUIRED, "maxBytesPerTrigger": "5"})
    for given in ({"maxBytesPerTrigger": "5"}, {"endingLsn": "5"}, {"startingLsn": "latest"}):
        parse_options({**REQUIRED, **given}, Use.ANY)


def test_a_mistake_in_either_kind_of_query_is_found_before_spark_says_which_it_is() -> None:
    with pytest.raises(OptionError, match="failOnDataLoss"):
        parse_options({**REQUIRED, "failOnDataLoss": "no"}, Use.ANY)


def test_offsets_of_logs_that_are_not_read() -> None:
    with pytest.raises(OptionError, match="startingOffsets' names shard 4, which is not read"):
        parse_options({**REQUIRED, "startingOffsets": '{"4": 5}'})
    every = parse_options(
        {"logservice.endpoints": "a:1", "shards": "*", "endingOffsets": '{"4":5}'}
    )
    with pytest.raises(OptionError, match="endingOffsets' names shard 4"):
        check_named(every, [1, 3])
    check_named(every, [4])


@pytest.mark.parametrize(
    ("given", "columns"),
    [
        ({}, ("shard", "lsn", "term", "timestamp", "value")),
        ({"includeValue": "false"}, ("shard", "lsn", "term", "timestamp")),
        ({"columns": "value, LSN"}, ("lsn", "value")),
        ({"columns": "gap,lsn", "includeGaps": "true"}, ("lsn", "gap")),
        ({"columns": "*"}, COLUMNS),
        ({"columns": "key, *"}, (*COLUMNS, "key")),
        ({"columns": "*,headers", "includeGaps": "true"}, (*COLUMNS, "headers", "gap")),
        ({"columns": "RECORD_TIME,key"}, ("key", "record_time")),
        ({"columns": "*,key", "archive": "/a"}, ("shard", "lsn", "timestamp", "value", "key")),
    ],
)
def test_columns(given: dict[str, str], columns: tuple[str, ...]) -> None:
    assert parse_options({**REQUIRED, **given}).columns == columns


def test_the_environment_says_where_the_stores_are() -> None:
    variables = {
        "LOGSERVICE_ENDPOINTS": "b:2",
        "LOGSERVICE_TLS_CA": "ca.pem",
        "LOGSERVICE_TLS_CERT": "cert.pem",
        "LOGSERVICE_TLS_KEY": "key.pem",
        "LOGSERVICE_TLS_SERVER_NAME": "stores",
    }
    found = parse_options({"shard": "1"}, environment=variables)
    assert (found.endpoints, found.tls_server_name) == ("b:2", "stores")
    assert (found.tls_ca, found.tls_certificate, found.tls_key) == ("ca.pem", "cert.pem", "key.pem")
    given = {"logservice.endpoints": "a:1", "logservice.tls.ca": "", "shard": "1"}
    said = parse_options(given, environment=variables)
    assert (said.endpoints, said.tls_ca, said.tls_key) == ("a:1", "", "key.pem")
    with pytest.raises(OptionError, match="LOGSERVICE_ENDPOINTS in the environment"):
        parse_options({"shard": "1"}, environment={"LOGSERVICE_ENDPOINTS": ""})


def test_conditions_are_pushed_once_or_not_at_all() -> None:
    assert not parse_options(REQUIRED).push_filters
    assert not parse_options({**REQUIRED, "pushFilters": "false"}).push_filters
    assert parse_options({**REQUIRED, "pushFilters": "Once"}).push_filters
    with pytest.raises(OptionError, match="neither false nor once"):
        parse_options({**REQUIRED, "pushFilters": "true"})
    with pytest.raises(OptionError, match="Spark gives a stream no conditions"):
        parse_options({**REQUIRED, "pushFilters": "once"}, Use.STREAM)


@pytest.mark.parametrize(
    "given",
    [{}, {"provider": "logservice", "option.shard": "1", "shard": "1", "owner": "somebody"}],
)
def test_a_permanent_table_is_refused_in_words(given: dict[str, str]) -> None:
    with pytest.raises(OptionError, match="CREATE TEMPORARY VIEW"):
        parse_options(given, environment={"LOGSERVICE_ENDPOINTS": "a:1"})
