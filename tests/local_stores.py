"""The store processes that a test started, and how it ends them.

`LocalCluster.down` stops all stores at once, as an operator would. A store that leads then waits
three seconds for a successor that is stopping, too. A test that is over has nothing to hand over,
so it kills its stores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from logservice.cli.processes.local_cluster import LocalCluster


def kill_stores(cluster: LocalCluster) -> None:
    """Kill every store of the cluster that runs, and wait until it is gone."""
    cluster.kill_all()


@contextmanager
def started_cluster(
    folder: Path, *, settings: Mapping[str, Mapping[str, object]], **options: Any
) -> Iterator[LocalCluster]:
    """A new cluster in `folder` that accepts appends; its stores are killed at the end. `options`:
    see `LocalCluster.create`.
    """
    running = LocalCluster.create(folder, settings=settings, **options)
    try:
        running.up(60)
        yield running
    finally:
        kill_stores(running)
