"""kafka_names: what options of Spark's Kafka source are called here.

A job that moves from Kafka brings its options along. Those that mean the same here have the same
name; for each of the others an error names the option to use.
"""

from __future__ import annotations

from typing import Final

_HERE: Final = {
    "assign": "shards",
    "endingoffsetsbytimestamp": "endingTimestamp",
    "endingoffsetsbytimestampstrategy": "endingTimestamp",
    "fetchoffset.numretries": "logservice.rpc.timeout",
    "fetchoffset.retryintervalms": "logservice.rpc.timeout",
    "groupidprefix": "hold",
    "includeheaders": "columns",
    "kafka.bootstrap.servers": "logservice.endpoints",
    "kafka.client.rack": "logservice.zone",
    "kafka.group.id": "hold",
    "kafka.sasl.jaas.config": "logservice.token.file",
    "kafka.security.protocol": "logservice.tls.ca",
    "kafka.ssl.key.location": "logservice.tls.key",
    "kafka.ssl.keystore.location": "logservice.tls.cert",
    "kafka.ssl.truststore.location": "logservice.tls.ca",
    "kafkaconsumer.polltimeoutms": "logservice.rpc.timeout",
    "maxoffsetspertrigger": "maxRecordsPerTrigger",
    "startingoffsetsbytimestamp": "startingTimestamp",
    "startingoffsetsbytimestampstrategy": "startingTimestamp",
    "subscribe": "shards",
    "subscribepattern": "shards",
    "topic": "shard",
}


def called_here(name: str) -> str | None:
    """The option for what Kafka's source or sink calls `name`; None where there is none."""
    return _HERE.get(name.lower())
