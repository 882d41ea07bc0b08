"""Rules, alerts and the dashboard name metrics that exist; every alert has a runbook that exists.

`make test-prometheus` (promtool) tests whether Prometheus takes the files, and whether the alerts
fire when they should.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from logservice.archive import lag as archive_lag
from logservice.archive.process_metrics import ProcessMetrics
from logservice.archive.verify_figures import write_figures
from logservice.mirror import lag as mirror_lag
from tests.server.monitor.test_metrics import names
from tests.tidy.test_symptoms import anchors
from tools import make_dashboard, make_prometheus_rule

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
ALERTS = (PROMETHEUS / "alerts.yml").read_text()
RULES = (PROMETHEUS / "rules.yml").read_text()
RUNBOOKS = "https://logservice.invalid/"
RECORDED = set(re.findall(r"record: (\S+)", RULES))
FROM_THE_LIBRARY = {"process_cpu_seconds_total", "process_resident_memory_bytes", "up"}


def beside_a_cluster(path: Path) -> set[str]:
    """Names of the metrics of the processes beside a cluster, and of what one writes at its end."""
    found = set()
    made: list[ProcessMetrics] = [archive_lag.Metrics(), mirror_lag.Metrics()]
    for one in made:
        for family in one.registry.collect():
            found.add(family.name + ("_total" if family.type == "counter" else ""))
    write_figures(path, [], 0.0)
    return found | set(re.findall(r"^# TYPE (\S+)", path.read_text(), re.MULTILINE))


def metrics_in(text: str) -> set[str]:
    """Names of metrics, also recorded ones, in PromQL expressions."""
    without_labels = re.sub(r"\{[^}]*\}", "", text)
    return set(re.findall(r"\b(?:logservice[_:][a-z0-9_:]+|process_[a-z_]+)", without_labels))


def every_rule(text: str) -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


def expressions(text: str) -> str:
    return "\n".join(rule["expr"] for rule in every_rule(text))


@pytest.mark.parametrize("text", [RULES, ALERTS], ids=["rules", "alerts"])
def test_rules_and_alerts_name_real_metrics(text: str, tmp_path: Path) -> None:
    used = metrics_in(expressions(text))
    assert len(used) > 5
    real = names() | beside_a_cluster(tmp_path / "archive.prom")
    assert used <= real | RECORDED | FROM_THE_LIBRARY


def panels() -> list[tuple[str, str]]:
    document = json.loads(make_dashboard.TARGET.read_text())
    return [
        (panel["title"], target["expr"])
        for panel in document["panels"]
        for target in panel.get("targets", ())
    ]


def test_rules_keep_clusters_apart() -> None:
    """Two clusters have logs of the same ids, and one Prometheus may watch both."""
    for rule in every_rule(RULES) + every_rule(ALERTS):
        aggregations = re.findall(r"\b(?:sum|max|min|topk)\b(?! by \(cluster[,)])", rule["expr"])
        assert not aggregations, rule["expr"]


def test_what_is_chosen_reaches_every_panel() -> None:
    variables = {one["name"]: one for one in make_dashboard.dashboard()["templating"]["list"]}
    assert list(variables) == ["source", "cluster", "store"]
    assert 'cluster=~"$cluster"' in variables["store"]["query"]["query"]
    for name in ("cluster", "store"):
        assert variables[name]["multi"]
        assert variables[name]["includeAll"]
        assert variables[name]["datasource"]["uid"] == "${source}"
    for title, query in panels():
        of_a_cluster = "logservice_cluster_" in query
        choice = 'cluster=~"$cluster"' if of_a_cluster else 'instance=~"$store"'
        named = re.findall(r"\b(?:logservice[_:][a-z0-9_:]+|process_[a-z_]+)", query)
        # A figure of a cluster is joined with logservice_store_info, which alone is selected.
        assert query.count(choice) == len(named) - of_a_cluster, f"{title}: {query}"


def test_every_panel_says_what_it_shows_and_in_which_unit() -> None:
    titles = set()
    for panel in make_dashboard.dashboard()["panels"]:
        if panel["type"] == "row":
            continue
        titles.add(panel["title"])
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["description"].endswith(".")
    assert len(titles) > 35


@pytest.mark.parametrize(("title", "query"), panels())
def test_every_panel_names_real_metrics(title: str, query: str) -> None:
    used = metrics_in(query)
    assert used, title
    assert used <= names() | RECORDED | FROM_THE_LIBRARY


def test_the_dashboard_is_what_the_tool_writes() -> None:
    assert make_dashboard.main(["--check"]) == 0


def test_the_operators_rules_are_what_the_tool_writes() -> None:
    assert make_prometheus_rule.main(["--check"]) == 0


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in make_dashboard.dashboard()["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_the_host_publishes_no_port_to_others() -> None:
    """The admin port needs no identity by default, so no other machine may reach it."""
    services = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())["services"]
    published = {name: one["ports"] for name, one in services.items() if "ports" in one}
    assert published.keys() >= {"store-1", "store-2", "store-3"}
    for ports in published.values():
        assert all(port.startswith("127.0.0.1:") for port in ports), ports


def test_grafana_finds_prometheus_and_the_dashboard() -> None:
    """The compose file mounts the files where the provisioning looks for them."""
    services = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())["services"]
    provisioning = ROOT / "deploy" / "grafana" / "provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())[
        "datasources"
    ]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")
    assert services["prometheus"]["ports"] == ["127.0.0.1:${PROMETHEUS_PORT:-9090}:9090"]
    mounts = dict(one.split(":")[:2] for one in services["grafana"]["volumes"])
    assert mounts["./grafana/provisioning"] == "/etc/grafana/provisioning"
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "logservice.yml").read_text())[
        "providers"
    ]
    target = Path(mounts["./grafana/logservice.json"])
    assert str(target.parent) == provider["options"]["path"]
    document = json.loads(make_dashboard.TARGET.read_text())
    (variable,) = (one for one in document["templating"]["list"] if one["type"] == "datasource")
    assert variable["query"] == source["type"]
    used = {panel["datasource"]["uid"] for panel in document["panels"] if panel.get("targets")}
    assert used == {f"${{{variable['name']}}}"}
    # Prometheus finds its folder with the rules, and the stores that the compose file starts.
    assert "./prometheus:/etc/prometheus:ro" in services["prometheus"]["volumes"]
    scraped = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())["scrape_configs"]
    (targets,) = (one["targets"] for one in scraped[0]["static_configs"])
    assert {one.rpartition(":")[0] for one in targets} <= services.keys()


def test_every_alert_is_seen_firing_and_silent() -> None:
    """promtool runs the tests of the rules: `make test-prometheus`."""
    cases = yaml.safe_load((PROMETHEUS / "alerts_test.yml").read_text())["tests"]
    seen = {
        (case["alertname"], bool(case.get("exp_alerts")))
        for test in cases
        for case in test.get("alert_rule_test", ())
    }
    alerts = re.findall(r"alert: (\w+)", ALERTS)
    assert seen == {(alert, fires) for alert in alerts for fires in (True, False)}


def test_every_alert_has_a_runbook_that_exists() -> None:
    alerts = [rule for rule in every_rule(ALERTS) if "alert" in rule]
    assert len({rule["alert"] for rule in alerts}) == len(alerts) >= 40
    for rule in alerts:
        address = rule["annotations"]["runbook_url"]
        page, _, anchor = address.removeprefix(RUNBOOKS).partition("#")
        path = ROOT / page
        assert path.parent == ROOT / "docs" / "operations", address
        assert anchor in anchors(path.read_text(encoding="utf-8")), address


def test_the_documented_command_sets_where_runbooks_are(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "operations" / "symptoms.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^sed -i .*$", page, re.MULTILINE)
    target = tmp_path / "deploy" / "prometheus" / "alerts.yml"
    target.parent.mkdir(parents=True)
    target.write_text(ALERTS)
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    before = [rule["annotations"]["runbook_url"] for rule in every_rule(ALERTS)]
    after = [rule["annotations"]["runbook_url"] for rule in every_rule(target.read_text())]
    new = "https://forge.example/logservice/blob/main/"
    assert after == [one.replace(RUNBOOKS, new) for one in before]
