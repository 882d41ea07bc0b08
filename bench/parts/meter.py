"""What a client's meter costs: processor time of the append path, without and with it.

python -m bench.parts.meter

Records go into the queue, become blocks, and are settled by acks, as in every append; only the
network between is left out. So the share of the meter is larger here than in a program.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

from logservice_client import LogClient, Meter
from logservice_client.otel import Metrics as OtelMetrics
from logservice_client.prometheus import Metrics as PrometheusMetrics
from logservice_wire.v1 import log_pb2
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry

ROUNDS = 15
BLOCKS = 2000
SHAPES = ((1, 100), (10, 100), (1000, 100))
"""Records of a block, and bytes of a record."""


class NoMetrics(Meter):
    """The calls, and nothing behind them."""


def meters() -> dict[str, Meter | None]:
    """By name; None first."""
    return {
        "without": None,
        "empty": NoMetrics(),
        "Prometheus": PrometheusMetrics(CollectorRegistry()),
        "OpenTelemetry": OtelMetrics(MeterProvider([InMemoryMetricReader()])),
    }


async def block_us(meter: Meter | None, records: int, size: int) -> float:
    """Microseconds of processor time of one block."""
    async with LogClient("127.0.0.1:1", meter=meter) as client:
        appender = client.shard(1)._appender
        record = b"x" * size
        deadline_s = asyncio.get_running_loop().time() + 3600
        position = log_pb2.LogPosition(voters=3, healthy_voters=3)
        blocks = max(20, min(BLOCKS, 200_000 // records))
        started = time.thread_time()
        for number in range(1, blocks + 1):
            for _ in range(records):
                appender.queue.put_record(record, 0, deadline_s)
            appender._take(0)
            ack = log_pb2.AppendStreamResponse.Ack(
                sequence=number, lsn=number, record_count=records
            )
            appender._acked([ack], position)
        return (time.thread_time() - started) / blocks * 1e6


def lines() -> Iterator[str]:
    """The table."""
    for records, size in SHAPES:
        best: dict[str, float] = {}
        for _ in range(ROUNDS):
            # In turns, so that a busy machine hits all of them.
            for name, meter in meters().items():
                found = asyncio.run(block_us(meter, records, size))
                best[name] = min(found, best.get(name, found))
        without = best.pop("without")
        more = ", ".join(f"{name} +{us - without:.2f} us" for name, us in best.items())
        yield f"a block of {records} records of {size} B: {without:.2f} us without a meter, {more}"


def main() -> None:
    """Print it."""
    for line in lines():
        print(line)


if __name__ == "__main__":
    main()
