"""What a write is told: options, columns, and which piece of work a task does."""

from __future__ import annotations

import pickle
import time
from typing import Any

import pytest
from logservice_wire.errors import ShardNotFound
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)
from pyspark_logservice import DefaultSource
from pyspark_logservice.checks import OptionError
from pyspark_logservice.writing import identity
from pyspark_logservice.writing.columns import ColumnError, more_columns, routing_column
from pyspark_logservice.writing.identity import UnknownWorkError, work_of
from pyspark_logservice.writing.options import (
    DRAWN_TASK_S,
    DRAWN_TTL_S,
    VERSION_MAX,
    WriteOptions,
    parse_write_options,
)

from tests.client.running_fake import running_fake


def pairs(**fields: DataType) -> DataType:
    return ArrayType(StructType([StructField(name, kind) for name, kind in fields.items()]))


TYPES = {
    one.simpleString(): one
    for one in (
        BinaryType(),
        IntegerType(),
        LongType(),
        StringType(),
        TimestampType(),
        TimestampNTZType(),
        MapType(StringType(), BinaryType()),
        ArrayType(StringType()),
        pairs(key=StringType(), value=BinaryType()),
        pairs(key=StringType(), value=StringType()),
        pairs(value=BinaryType(), key=StringType()),
    )
}
REQUIRED = {"logservice.endpoints": "a:1", "shards": "1,2"}


def parsed(*, stream: bool = False, **options: str) -> WriteOptions:
    return parse_write_options(
        {**REQUIRED, **{name.replace("__", "."): value for name, value in options.items()}},
        stream=stream,
    )


def frame(columns: str) -> StructType:
    named = (column.split() for column in columns.split(", "))
    return StructType([StructField(name, TYPES[kind]) for name, kind in named])


def test_all_that_is_said() -> None:
    read = parse_write_options(
        {
            "logservice.endpoints": "a:1,b:2",
            "Shard": " orders , 07",
            "logservice.writeId": "nightly.orders:1",
            "logservice.writeVersion": str(VERSION_MAX),
            "logservice.rpc.timeout": "2.5",
            "logservice.tls.ca": "ca",
            "logservice.tls.cert": "c",
            "logservice.tls.key": "k",
            "logservice.tls.serverName": "s",
            "logservice.token.file": "t",
            "compression": " ZSTD ",
            "checkpointLocation": "/somewhere",
        },
        stream=False,
    )
    assert read == WriteOptions(
        endpoints="a:1,b:2",
        logs=("orders", "7"),
        rpc_timeout_s=2.5,
        tls_ca="ca",
        tls_certificate="c",
        tls_key="k",
        tls_server_name="s",
        token_file="t",
        write_id="nightly.orders:1",
        version=VERSION_MAX,
        codec="zstd",
    )
    assert pickle.loads(pickle.dumps(read)) == read


def test_the_environment_of_the_driver_says_what_no_option_does() -> None:
    variables = {"LOGSERVICE_ENDPOINTS": "e:1", "LOGSERVICE_TLS_CA": "their.pem"}
    given = {"shard": "1", "logservice.tls.ca": "my.pem"}
    found = parse_write_options(given, stream=True, environment=variables)
    assert (found.endpoints, found.tls_ca) == ("e:1", "my.pem")


def test_a_batch_without_an_id_gets_one_of_its_own() -> None:
    one, two = parsed(), parsed()
    assert one.write_id != two.write_id
    assert time.time() - 60 < one.drawn_s <= time.time()
    assert (parsed(stream=True).write_id, parsed(stream=True).drawn_s) == ("", 0)
    assert one.codec is parsed(compression="none").codec is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"startingLsn": "1"}, "unknown option 'startingLsn' of a write; there are"),
        ({"logservice.endpoints": " "}, "'logservice.endpoints', or LOGSERVICE_ENDPOINTS"),
        ({"shard": "1"}, "exactly one of the options"),
        ({"shards": "orders-*"}, "lists its logs"),
        ({"shards": "*"}, "lists its logs"),
        ({"shards": "0"}, "from 1"),
        ({"shards": "1,,2"}, "neither an id nor the name"),
        ({"shards": "-3"}, "neither an id nor the name"),
        ({"shards": "1,a,01"}, "there twice"),
        ({"logservice.writeId": "no spaces"}, "'logservice.writeId': 'no spaces'"),
        ({"logservice.writeId": "x" * 65}, "1 to 64"),
        ({"logservice.writeVersion": "3"}, "needs 'logservice.writeId'"),
        ({"logservice.writeId": "a", "logservice.writeVersion": "-1"}, "writeVersion': '-1'"),
        ({"logservice.writeId": "a", "logservice.writeVersion": str(2**31)}, "writeVersion"),
        ({"logservice.rpc.timeout": "0"}, "not a time"),
        ({"compression": "gzip"}, "'compression': 'gzip' is none of none, zstd, lz4"),
        ({"compression": ""}, "'compression': '' is none of"),
    ],
)
def test_mistakes(options: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        parse_write_options({**REQUIRED, **options}, stream=False)


def test_a_stream_is_known_by_its_checkpoint() -> None:
    for name in ("logservice.writeId", "logservice.writeVersion"):
        with pytest.raises(OptionError, match="known by its checkpoint"):
            parse_write_options({**REQUIRED, name: "1"}, stream=True)


@pytest.mark.parametrize(
    ("schema", "logs", "routing"),
    [
        ("value binary", "7", ""),
        ("value string", "orders", ""),
        ("shard bigint, value binary", "1,2", "shard"),
        ("value binary, shard int", "1,orders", "shard"),
        ("name string, value binary", "a,b", "name"),
    ],
)
def test_columns_that_say_where_a_row_goes(schema: str, logs: str, routing: str) -> None:
    assert routing_column(frame(schema), parsed(shards=logs)) == routing


@pytest.mark.parametrize(
    ("schema", "more"),
    [
        ("shard bigint, value binary", ()),
        ("key string, value binary", ("key",)),
        (
            "headers array<struct<key:string,value:binary>>, timestamp timestamp, value string, "
            "key binary",
            ("key", "timestamp", "headers"),
        ),
    ],
)
def test_columns_that_make_wide_blocks(schema: str, more: tuple[str, ...]) -> None:
    found = frame(schema)
    assert routing_column(found, parsed(shards="1")) in ("", "shard")
    assert more_columns(found) == more


@pytest.mark.parametrize(
    ("schema", "logs", "says"),
    [
        ("value binary, key bigint", "1", "column 'key' is bigint, not binary or string"),
        ("value binary, timestamp bigint", "1", "column 'timestamp' is bigint, not timestamp"),
        ("value binary, timestamp timestamp_ntz", "1", "is timestamp_ntz, not timestamp"),
        ("value binary, headers map<string,binary>", "1", "is map<string,binary>, not array<str"),
        (
            "value binary, headers array<struct<key:string,value:string>>",
            "1",
            "not array<struct<key:string,value:binary>>",
        ),
        ("value binary, headers array<struct<value:binary,key:string>>", "1", "not array<struct"),
        ("value binary, headers array<string>", "1", "is array<string>, not array<struct"),
        ("value binary, record_time timestamp", "1", "column 'record_time' cannot be written"),
        ("value binary, lsn bigint", "1", "column 'lsn' cannot be written; a row is"),
        ("value binary, Value binary", "1", "column 'Value' cannot be written"),
        ("shard bigint", "1", "a row has one column 'value'"),
        ("value binary, value binary", "1", "a row has one column 'value'"),
        ("value bigint", "1", "column 'value' is bigint, not binary or string"),
        ("value binary, shard string", "1", "column 'shard' is string, not bigint or int or"),
        ("value binary, name binary", "a", "column 'name' is binary, not string"),
        ("value binary, shard bigint, name string", "a", "exclude each other"),
        ("value binary", "1,2", "with several logs"),
        ("value binary, name string", "a,2", "has names, not ids"),
    ],
)
def test_columns_that_are_refused(schema: str, logs: str, says: str) -> None:
    with pytest.raises(ColumnError, match=says):
        routing_column(frame(schema), parsed(shards=logs))


def test_the_source_makes_writers_that_pickle_and_never_overwrite() -> None:
    with running_fake() as cluster:
        endpoints = ",".join(cluster.endpoints)
        source = DefaultSource({"logservice.endpoints": endpoints, "shards": "1"})
        for make in (source.writer, source.streamWriter):
            writer = make(frame("value binary"), False)
            assert type(pickle.loads(pickle.dumps(writer))) is type(writer)
            with pytest.raises(OptionError, match="appended to"):
                make(frame("value binary"), True)


def test_a_write_to_a_log_that_is_not_there_fails_on_the_driver() -> None:
    with running_fake() as cluster:
        given = {"logservice.endpoints": ",".join(cluster.endpoints)}
        for log in ("77", "nope"):
            source = DefaultSource({**given, "shards": log})
            for make in (source.writer, source.streamWriter):
                with pytest.raises(ShardNotFound, match=log):
                    make(frame("value binary"), False)


class Context:
    """A task, as far as its work is told by it."""

    def __init__(self, partition: int = 3, **properties: str) -> None:
        self.partition = partition
        self.properties = {name.replace("__", "."): value for name, value in properties.items()}

    def partitionId(self) -> int:
        return self.partition

    def getLocalProperty(self, name: str) -> str | None:
        return self.properties.get(name)


def work(options: WriteOptions, **properties: str) -> Any:
    return work_of(options, Context(**properties))  # type: ignore[arg-type]


def test_the_work_of_a_stream() -> None:
    said = {"sql__streaming__queryId": "q-1", "streaming__sql__batchId": "41"}
    found = work(parsed(stream=True), **said)
    assert (found.session, found.epoch, found.ttl_s) == ("spark-stream/q-1/3", 41, 0)
    assert str(found) == "partition 3 of micro-batch 41 of query q-1"


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"sql__streaming__queryId": "q"},
        {"streaming__sql__batchId": "1"},
        {"sql__streaming__queryId": "q", "streaming__sql__batchId": "-1"},
        {"sql__streaming__queryId": "q", "streaming__sql__batchId": str(2**31)},
    ],
)
def test_a_stream_that_is_not_known_writes_nothing(said: dict[str, str]) -> None:
    with pytest.raises(UnknownWorkError, match="does not say which micro-batch"):
        work(parsed(stream=True), **said)
    with pytest.raises(UnknownWorkError, match="not in a task"):
        work_of(parsed(stream=True), None)


def test_the_work_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    # A batch inside of foreachBatch has the properties of its stream, and is no part of it.
    said = {"sql__streaming__queryId": "q-1", "streaming__sql__batchId": "41"}
    given = work(parsed(logservice__writeId="x", logservice__writeVersion="9"), **said)
    assert (given.session, given.epoch, given.ttl_s) == ("spark-write/x/3", 9, 0)
    assert str(given) == "partition 3 of version 9 of write 'x'"
    options = parsed()
    drawn = work(options)
    assert (drawn.session, drawn.ttl_s) == (f"spark-write/{options.write_id}/3", DRAWN_TTL_S)
    later = options.drawn_s + DRAWN_TASK_S + 1
    monkeypatch.setattr(identity.time, "time", lambda: later)
    with pytest.raises(UnknownWorkError, match="begins 12 hours after"):
        work(options)
    assert work(parsed(logservice__writeId="x")).epoch == 0
