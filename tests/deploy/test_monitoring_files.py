"""Rules, alerts and the dashboard name metrics that exist; every alert has a page that exists.

`make test-prometheus` (promtool) tests whether Prometheus takes the files, and whether the alerts
fire when they should.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from logservice.archive import lag as archive_lag
from logservice.archive.process_metrics import ProcessMetrics
from logservice.archive.verify_figures import write_figures
from logservice.mirror import lag as mirror_lag
from tests.server.monitor.test_metrics import names
from tools import make_dashboard

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
ALERTS = (PROMETHEUS / "alerts.yml").read_text()
RULES = (PROMETHEUS / "rules.yml").read_text()
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


def expressions(text: str) -> str:
    return "\n".join(re.findall(r"^ +expr: (.*)$", text, re.MULTILINE))


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


@pytest.mark.parametrize(("title", "query"), panels())
def test_every_panel_names_real_metrics(title: str, query: str) -> None:
    used = metrics_in(query)
    assert used, title
    assert used <= names() | RECORDED | FROM_THE_LIBRARY


def test_the_dashboard_is_what_the_tool_writes() -> None:
    assert make_dashboard.main(["--check"]) == 0


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


def test_every_alert_has_a_page() -> None:
    alerts = re.findall(r"alert: (\w+)", ALERTS)
    pages = re.findall(r"runbook: (\S+)", ALERTS)
    assert len(alerts) == len(pages) == len(set(alerts)) >= 20
    for page in pages:
        assert (ROOT / page).is_file(), page
