"""The store processes that a test started, and how it ends them.

`LocalCluster.down` stops all stores at once, as an operator would. A store that leads then waits
three seconds for a successor that is stopping, too. A test that is over has nothing to hand over,
so it kills its stores.
"""

from __future__ import annotations

from logservice.cli.processes.local_cluster import LocalCluster


def kill_stores(cluster: LocalCluster) -> None:
    """Kill every store of the cluster that runs, and wait until it is gone."""
    cluster.kill_all()
