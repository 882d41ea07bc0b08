"""Tries the peers: ``python -m bench.peers --callers 1 64 --size 256``.

They run one after the other and not in turns, so their figures are not for comparing with those of
another minute; ``python -m bench`` is for that.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from bench.load.closed_loop import Sample
from bench.peers.catalogue import PEERS
from bench.peers.peer import Running, Unavailable, Workload

WIDTH = 130
"""Of the table when there is no terminal."""


def main() -> None:
    """Measure and print; exits with 1 when a peer failed, which takes no other's rows away."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--callers", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--size", type=int, default=256, help="bytes of a record")
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument(
        "--unary", action="store_true", help="a connection for every caller, not one for all"
    )
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--warmup", type=float, default=1.0, help="seconds before")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", nargs="*", choices=[key for key, _ in PEERS])
    arguments = parser.parse_args()
    # Told to stop, it ends its peers: a signal's default would leave their processes behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH
    failed = False
    table = Table("peer", "an ack means", "callers", "records/s", "p50 ms", "p99 ms", "p99.9 ms")
    for key, running in PEERS:
        if arguments.only and key not in arguments.only:
            continue
        try:
            for row in _rows(running, arguments):
                table.add_row(*row)
        except Unavailable as why:
            console.print(f"{key} cannot be had here: {why}")
        except Exception as error:  # noqa: BLE001 - a peer's failure of any kind
            failed = True
            console.print(f"{key} FAILED: {error!r}", markup=False)
    console.print(table)
    sys.exit(1 if failed else 0)


def _rows(running: Running, arguments: argparse.Namespace) -> list[list[str]]:
    rows = []
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-peer-"))
        peer = stack.enter_context(running(Path(directory)))
        runner = stack.enter_context(asyncio.Runner())
        for callers in arguments.callers:
            connections = callers if arguments.unary else 1
            workload = Workload(callers, arguments.size, arguments.shards, connections)
            if not peer.takes(workload):
                rows.append([peer.name, peer.acks, str(callers), "-"])
                continue
            samples = [
                runner.run(
                    peer.sample(workload, warmup_s=arguments.warmup, seconds=arguments.seconds)
                )
                for _ in range(arguments.rounds)
            ]
            rows.append([peer.name, peer.acks, str(callers), *_figures(samples)])
    return rows


def _figures(samples: list[Sample]) -> list[str]:
    rates = [sample.rate for sample in samples]
    latencies = (
        median(sample.percentile(fraction) for sample in samples) for fraction in (0.5, 0.99, 0.999)
    )
    return [
        f"{median(rates):.0f} ({min(rates):.0f} - {max(rates):.0f})",
        *(f"{latency:.2f}" for latency in latencies),
    ]


if __name__ == "__main__":
    main()
