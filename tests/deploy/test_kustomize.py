"""deploy/kubernetes/ as kustomize builds it: what a change of the configuration does, and the
component for monitoring.

`kubectl kustomize` builds what `kubectl apply -k` of docs/operations/kubernetes.md applies. No
cluster is asked. Where there is no kubectl, or one without components, the tests are skipped.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import textwrap
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.deploy.test_kubernetes import APP, FOLDER, VERSIONS
from tests.deploy.test_monitoring_files import ALERTS, RULES, RUNBOOKS, every_rule

PAGE = (FOLDER.parents[1] / "docs" / "operations" / "kubernetes.md").read_text(encoding="utf-8")
Objects = dict[tuple[str, str], dict[str, Any]]
"""What was built, by kind and name."""


def of_the_page(begin: str) -> str:
    """The block of YAML on the page that begins so."""
    blocks = re.findall(r"^ *```yaml\n(.*?)^ *```$", PAGE, re.MULTILINE | re.DOTALL)
    (found,) = (one for one in map(textwrap.dedent, blocks) if one.startswith(begin))
    return found


@pytest.fixture
def overlay(tmp_path: Path) -> Path:
    """A folder of the operator's own beside a copy of ours, with the kustomization of the page."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    shutil.copytree(FOLDER, tmp_path / "logservice" / "deploy" / "kubernetes")
    (tmp_path / "kustomization.yaml").write_text(of_the_page("# kustomization.yaml"))
    done = subprocess.run(["kubectl", "kustomize", tmp_path], capture_output=True, text=True)
    if 'unknown field "components"' in done.stderr:
        pytest.skip("kubectl is too old for components")
    return tmp_path


def build(folder: Path) -> Objects:
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = list(yaml.safe_load_all(done.stdout))
    objects = {(one["kind"], one["metadata"]["name"]): one for one in found}
    assert len(objects) == len(found)
    return objects


def ours(overlay: Path) -> Path:
    return overlay / "logservice" / "deploy" / "kubernetes"


def the_one(objects: Objects, kind: str) -> dict[str, Any]:
    (found,) = (one for (its_kind, _), one in objects.items() if its_kind == kind)
    return found


def test_what_is_built_is_valid_by_the_schemas(overlay: Path) -> None:
    objects = build(overlay)
    own = {"ServiceMonitor", "PrometheusRule"}  # those of the operator: test_schemas.py
    assert {kind for kind, _ in objects} >= own | {"StatefulSet", "ConfigMap", "NetworkPolicy"}
    for (kind, _), one in objects.items():
        for version in VERSIONS:
            if kind not in own:
                kubernetes_validate.validate(one, version, strict=True)
        assert kind == "Namespace" or one["metadata"]["namespace"] == "logservice"


def test_a_changed_configuration_replaces_the_pods_and_keeps_the_older_one(overlay: Path) -> None:
    before = build(overlay)
    path = ours(overlay) / "store.toml"
    path.write_text(path.read_text() + "\n[raft]\ntick_ms = 50\n")
    after = build(overlay)
    maps = [the_one(objects, "ConfigMap") for objects in (before, after)]
    # Two objects: `apply` makes the second one beside the first, which older pods still mount.
    assert maps[0]["metadata"]["name"] != maps[1]["metadata"]["name"]
    assert all(one["immutable"] is True for one in maps)
    pods = [the_one(objects, "StatefulSet")["spec"]["template"] for objects in (before, after)]
    assert pods[0] != pods[1]
    for pod, its_map in zip(pods, maps, strict=True):
        (volume,) = (one for one in pod["spec"]["volumes"] if one["name"] == "config")
        assert volume["configMap"]["name"] == its_map["metadata"]["name"]
        volume["configMap"]["name"] = "the same"
    assert pods[0] == pods[1]
    assert tomllib.loads(maps[1]["data"]["store.toml"])["raft"] == {"tick_ms": 50}


def test_the_same_configuration_replaces_no_pod(overlay: Path) -> None:
    assert build(overlay) == build(overlay)


def test_lists_of_what_is_revoked_reach_running_pods(overlay: Path) -> None:
    """They are no file of ours: their map keeps its name, and no pod is replaced for it."""
    volumes = the_one(build(overlay), "StatefulSet")["spec"]["template"]["spec"]["volumes"]
    (revoked,) = (one for one in volumes if one["name"] == "revoked")
    assert revoked["configMap"]["name"] == "logservice-revoked"


def test_an_operator_brings_a_configuration_of_their_own(overlay: Path) -> None:
    """As the page says it: the file lies beside their kustomization."""
    generator = of_the_page("configMapGenerator:")
    kustomization = overlay / "kustomization.yaml"
    kustomization.write_text(kustomization.read_text() + generator)
    text = (FOLDER / "store.toml").read_text().replace('"production"', '"shop"')
    (overlay / "store.toml").write_text(text)
    objects = build(overlay)
    assert the_one(objects, "ConfigMap")["data"] == {"store.toml": text}


def test_the_monitor_finds_the_port_and_names_the_stores(overlay: Path) -> None:
    objects = build(overlay)
    monitor = the_one(objects, "ServiceMonitor")
    service = the_one(objects, "Service")
    assert (
        monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    )
    assert service["metadata"]["labels"] == APP
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    # The job is the service's name, and the alerts ask for it.
    assert f'job="{service["metadata"]["name"]}"' in ALERTS
    assert service["spec"]["publishNotReadyAddresses"] is True
    labels = {one["targetLabel"]: one.get("replacement") for one in endpoint["relabelings"]}
    configuration = tomllib.loads(the_one(objects, "ConfigMap")["data"]["store.toml"])
    cluster = configuration["store"]["cluster_id"]
    assert labels == {"instance": None, "cluster": cluster}


def test_the_rules_are_those_of_prometheus(overlay: Path) -> None:
    objects = build(overlay)
    for name, text in (("logservice-rules", RULES), ("logservice-alerts", ALERTS)):
        assert objects["PrometheusRule", name]["spec"] == yaml.safe_load(text)


def test_one_line_says_where_the_runbooks_are(overlay: Path) -> None:
    path = ours(overlay) / "monitoring" / "runbooks.yaml"
    text = path.read_text()
    place = "forge.example/logservice/blob/main"
    assert f"  place: {RUNBOOKS.removeprefix('https://').rstrip('/')}\n" in text
    path.write_text(re.sub(r"^  place: .*$", f"  place: {place}", text, flags=re.MULTILINE))
    built = build(overlay)["PrometheusRule", "logservice-alerts"]["spec"]["groups"]
    after = [rule["annotations"]["runbook_url"] for group in built for rule in group["rules"]]
    before = [rule["annotations"]["runbook_url"] for rule in every_rule(ALERTS)]
    assert after == [one.replace(RUNBOOKS, f"https://{place}/") for one in before]


def test_without_the_component_nothing_of_the_operator_is_asked_for(overlay: Path) -> None:
    kinds = {kind for kind, _ in build(ours(overlay))}
    assert not kinds & {"ServiceMonitor", "PrometheusRule"}
