"""A real Prometheus with the files of deploy/prometheus watches real clusters, and answers what the
dashboard asks.

Two clusters are watched, so that what is chosen at the top of the dashboard can be seen to reach
the panels. What Prometheus is given in place of the variables is what Grafana gives it.

`make test-prometheus` runs it, with Debian's Prometheus; where there is none, it is skipped.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from logservice_client import SyncLogClient
from logservice_wire.errors import LogServiceError

from logservice.cli.processes.local_cluster import LocalCluster, free_ports
from tests.local_stores import kill_stores
from tests.waiting import wait_until
from tools import make_dashboard

FILES = Path(__file__).parents[2] / "deploy" / "prometheus"
EMPTY_WHEN_WELL = {
    "Why stores are not ready",
    "Failed calls",
    "Terms that changed",
    "Kept by holds although truncated",
    "First certificate ends in",  # these clusters have none
}
EMPTY_AT_FIRST = {"Left of the scrub's pass"}
"""Empty until a store scrubs."""
LIMIT_S = 180.0

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900)]


class Watched:
    """Two clusters, and the Prometheus that watches them."""

    def __init__(self, address: str, clusters: dict[str, LocalCluster]) -> None:
        self.clusters = clusters
        self._address = address

    def is_ready(self) -> bool:
        """It listens before it has read its own WAL, and answers queries with 503 until then."""
        try:
            with urllib.request.urlopen(f"http://{self._address}/-/ready", timeout=60):
                return True
        except OSError:
            return False

    def get(self, path: str, **parameters: str) -> Any:
        """`data` of an answer. Raises AssertionError with what Prometheus says of a bad query."""
        url = f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=60) as response:
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path} {parameters}: {error.read().decode()}") from error

    def ask(self, query: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("query", query=query)["result"]
        return found

    def values_of(self, definition: str, clusters: str) -> list[str]:
        """The values that Grafana offers for a variable."""
        match = re.fullmatch(r"label_values\((.*), (\w+)\)", definition)
        assert match, definition
        selector = match[1].replace("$cluster", clusters)
        found: list[str] = self.get(f"label/{match[2]}/values", **{"match[]": selector})
        return found

    def stores_of(self, *names: str) -> list[str]:
        return sorted(place.admin for one in names for place in self.clusters[one].stores.values())


def several(values: list[str]) -> str:
    """Several chosen values, as Grafana writes them into a query."""
    return "|".join(re.escape(one).replace("\\", "\\\\") for one in values)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    if shutil.which("prometheus") is None:
        if os.environ.get("LOGSERVICE_REQUIRE_PROMETHEUS") == "1":
            pytest.fail("prometheus is not installed")
        pytest.skip("prometheus is not installed")
    folder = tmp_path_factory.mktemp("prometheus")
    with ExitStack() as running:
        clusters = {
            name: LocalCluster.create(folder / name, stores=stores, shards=2)
            for name, stores in (("one", 3), ("two", 1))
        }
        for cluster in clusters.values():
            running.callback(kill_stores, cluster)
            cluster.up(LIMIT_S)
        address = f"127.0.0.1:{free_ports(1)[0]}"
        log = running.enter_context((folder / "log").open("w"))
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={configuration(folder, clusters)}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={address}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=log,
        )
        running.callback(process.wait, 60)
        running.callback(process.terminate)
        watched = Watched(address, clusters)
        wait_until(watched.is_ready, LIMIT_S)
        use(watched)
        yield watched


def configuration(folder: Path, clusters: dict[str, LocalCluster]) -> Path:
    """prometheus.yml with these stores, and a shorter interval."""
    document = yaml.safe_load((FILES / "prometheus.yml").read_text())
    document["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    (job,) = document["scrape_configs"]
    assert [*job["static_configs"][0]["labels"]] == ["cluster"]
    job["static_configs"] = [
        {
            "targets": [place.admin for place in cluster.stores.values()],
            "labels": {"cluster": name},
        }
        for name, cluster in clusters.items()
    ]
    for name in document["rule_files"]:
        shutil.copy(FILES / name, folder)
    path = folder / "prometheus.yml"
    path.write_text(yaml.safe_dump(document))
    return path


def use(watched: Watched) -> None:
    """Give every panel something to show, for as long as a rate needs."""
    logs = []
    with ExitStack() as clients:
        for cluster in watched.clusters.values():
            client = clients.enter_context(SyncLogClient(cluster.endpoints()))
            logs += [client.shard(1), client.shard(2)]

        def seen() -> bool:
            for log in logs:
                try:
                    lsn = log.append([b"record"] * 10)
                    list(log.read(lsn).records())
                    log.truncate(lsn)
                except LogServiceError:
                    return False  # a log that was made a moment ago
            rates = watched.ask("rate(logservice_append_seconds_count[1m]) > 0")
            recorded = watched.ask("logservice:durable_write_p99_seconds:rate5m > 0")
            return len(rates) >= 2 and len(recorded) == 4

        wait_until(seen, LIMIT_S)


def chosen(query: str, clusters: str, stores: str) -> str:
    return query.replace("$cluster", clusters).replace("$store", stores)


PANELS = [
    (panel["title"], target["expr"])
    for panel in make_dashboard.dashboard()["panels"]
    for target in panel.get("targets", ())
]
VARIABLES = {one["name"]: one for one in make_dashboard.dashboard()["templating"]["list"]}


def test_the_variables_offer_clusters_and_their_stores(watched: Watched) -> None:
    offered = watched.values_of(VARIABLES["cluster"]["query"]["query"], "")
    assert offered == ["one", "two"]
    # The scraper's label takes the place of what a store says itself.
    said = {one["metric"]["exported_cluster"] for one in watched.ask("logservice_store_info")}
    assert said == {cluster.cluster_id for cluster in watched.clusters.values()}
    for name in offered:
        stores = watched.values_of(VARIABLES["store"]["query"]["query"], name)
        assert sorted(stores) == watched.stores_of(name)


@pytest.mark.parametrize(("title", "query"), PANELS)
def test_every_panel_has_something_to_show(watched: Watched, title: str, query: str) -> None:
    clusters, stores = several(["one", "two"]), several(watched.stores_of("one", "two"))
    if title in EMPTY_WHEN_WELL | EMPTY_AT_FIRST:
        watched.ask(chosen(query, clusters, stores))  # it has to be a query all the same
    else:
        wait_until(lambda: watched.ask(chosen(query, clusters, stores)), LIMIT_S)


@pytest.mark.parametrize(("title", "query"), PANELS)
def test_every_panel_shows_what_is_chosen_alone(watched: Watched, title: str, query: str) -> None:
    other = set(watched.stores_of("one"))
    stores = several(watched.stores_of("two"))
    for series in watched.ask(chosen(query, "two", stores)):
        assert series["metric"].get("instance") not in other, title
        assert series["metric"].get("cluster") in {None, "two"}, title
    # Nothing is of a cluster that is not there, also where a panel adds up.
    assert watched.ask(chosen(query, "none", "none")) == [], title


def test_the_number_of_ready_stores_is_that_of_the_chosen_ones(watched: Watched) -> None:
    (query,) = (query for title, query in PANELS if title == "Stores ready")
    for names in (["one"], ["two"], ["one", "two"]):
        stores = watched.stores_of(*names)
        (series,) = watched.ask(chosen(query, several(names), several(stores)))
        assert series["value"][1] == str(len(stores))


def test_every_rule_works_and_nothing_is_critical(watched: Watched) -> None:
    rules = [one for group in watched.get("rules")["groups"] for one in group["rules"]]
    assert len(rules) > 45
    assert [one for one in rules if one["health"] != "ok"] == []
    critical = [
        one["name"]
        for one in rules
        if one["type"] == "alerting"
        and one["state"] == "firing"
        and one["labels"]["severity"] == "critical"
    ]
    assert critical == []


def test_an_alert_says_which_store_of_which_cluster_and_where_to_read(watched: Watched) -> None:
    """The last test: it kills a store."""
    cluster = watched.clusters["one"]
    address = cluster.stores["store-3"].admin
    cluster.kill("store-3")

    def alert() -> dict[str, Any] | None:
        name = "LogServiceStoreDown"
        alerts = watched.get("alerts")["alerts"]
        return next((one for one in alerts if one["labels"]["alertname"] == name), None)

    wait_until(alert, LIMIT_S)
    found = alert()
    assert found is not None
    assert (found["labels"]["cluster"], found["labels"]["instance"]) == ("one", address)
    assert found["annotations"]["summary"] == f"Store at {address} does not answer"
    assert found["annotations"]["runbook_url"].endswith("/lost-store.md#a-store-is-lost")
