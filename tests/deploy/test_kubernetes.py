"""deploy/kubernetes/ is valid by the API's schemas, and right as far as that shows without a
cluster.

The tests read the configuration as a store in a pod does, with its arguments expanded. Every file
that it names is mounted; ports, labels and probes agree with each other.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from logservice import config

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
VERSIONS = ("1.31", kubernetes_validate.latest_version().rpartition(".")[0])
APP = {"app.kubernetes.io/name": "logservice"}


def documents() -> dict[str, dict[str, Any]]:
    """The objects by kind; there is one of each. The config map is made by kustomize."""
    named = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]
    assert sorted(named) == sorted(
        path.name for path in FOLDER.glob("*.yaml") if path.name != "kustomization.yaml"
    )
    found = [yaml.safe_load((FOLDER / name).read_text()) for name in named]
    assert len({document["kind"] for document in found}) == len(found)
    return {document["kind"]: document for document in found}


KINDS = documents()
POD = KINDS["StatefulSet"]["spec"]["template"]
STORE = POD["spec"]["containers"][0]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_valid_by_the_schema(kind: str, version: str) -> None:
    kubernetes_validate.validate(KINDS[kind], version, strict=True)


def test_the_validator_can_refuse() -> None:
    wrong = yaml.safe_load((FOLDER / "statefulset.yaml").read_text())
    wrong["spec"]["replica"] = 3
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[0], strict=True)


def expanded(text: str, number: int) -> str:
    values = {
        "POD_NAME": f"logservice-{number}",
        "POD_NAMESPACE": "logservice",
        "NODE_NAME": f"node-{number}.example",
    }
    names = {one["name"] for one in STORE["env"]}
    assert names == values.keys()
    return re.sub(r"\$\((\w+)\)", lambda match: values[match[1]], text)


def read(number: int) -> config.StoreConfig:
    """The configuration as the pod reads it."""
    arguments = [expanded(argument, number) for argument in STORE["args"]]
    assert arguments[:3] == ["store", "run", "--config=/etc/logservice/store.toml"]
    assignments = [argument.removeprefix("--set=") for argument in arguments[3:]]
    return config.parse((FOLDER / "store.toml").read_text(), assignments)


def test_every_pod_has_a_configuration_of_its_own() -> None:
    pods = [read(number) for number in range(KINDS["StatefulSet"]["spec"]["replicas"])]
    members = {one.store_id: one.peer_address for one in pods[0].bootstrap.hakeeper_members}
    assert members == {pod.store.store_id: pod.listen.advertise_peer for pod in pods}
    assert len({pod.store.host for pod in pods}) == len(pods)
    assert all(pod.tls.enabled and pod.security.admins for pod in pods)


def test_every_file_of_the_configuration_is_mounted_for_the_pod_alone() -> None:
    mounts = {mount["mountPath"]: mount for mount in STORE["volumeMounts"]}
    tls = read(0).tls
    named = [
        tls.client_ca,
        tls.certificate,
        tls.key,
        tls.peer_ca,
        tls.peer_certificate,
        tls.peer_key,
    ]
    for name in named:
        mount = mounts.pop(f"/etc/logservice/{name}")
        assert mount["readOnly"]
        own = mount.get("subPathExpr", "").startswith("$(POD_NAME).")
        assert own is not name.endswith("-ca.pem")
    # The lists of what is revoked are no secret, and are renewed under way: a folder, and no files.
    lists = mounts.pop("/etc/logservice/revoked")
    assert "subPath" not in lists
    assert (lists["name"], lists["readOnly"]) == ("revoked", True)
    assert {tls.client_crl, tls.peer_crl} == {"revoked/client-crl.pem", "revoked/peer-crl.pem"}
    assert mounts.keys() == {"/etc/logservice/store.toml", "/var/lib/logservice"}
    data = Path(read(0).store.data_directories[0])
    assert data.parent == Path("/var/lib/logservice")
    # Only the store's group may read it: the store refuses a key that others can read.
    (secret,) = (volume["secret"] for volume in POD["spec"]["volumes"] if "secret" in volume)
    assert secret["defaultMode"] == 0o440
    assert POD["spec"]["securityContext"]["fsGroup"] == 10001


def test_ports_and_labels_agree() -> None:
    pod = read(0)
    ports = {port["name"]: port["containerPort"] for port in STORE["ports"]}
    listen = {"client": pod.listen.client, "peer": pod.listen.peer, "admin": pod.admin.listen}
    assert {name: int(text.rpartition(":")[2]) for name, text in listen.items()} == ports
    service = KINDS["Service"]["spec"]
    assert KINDS["Service"]["metadata"]["labels"] == APP  # what the ServiceMonitor selects
    assert {port["name"]: port["port"] for port in service["ports"]} == ports
    assert service["clusterIP"] == "None"
    assert KINDS["StatefulSet"]["spec"]["serviceName"] == KINDS["Service"]["metadata"]["name"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert STORE[probe]["httpGet"]["port"] == "admin"
    selectors = [
        service["selector"],
        KINDS["StatefulSet"]["spec"]["selector"]["matchLabels"],
        KINDS["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        KINDS["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
        POD["metadata"]["labels"],
    ]
    assert selectors == [APP] * len(selectors)


def test_one_store_at_a_time_is_taken_away_and_each_has_its_node() -> None:
    """A majority of every shard survives an eviction and the loss of a machine."""
    budget = KINDS["PodDisruptionBudget"]["spec"]
    assert budget["maxUnavailable"] == 1
    assert "minAvailable" not in budget
    assert KINDS["StatefulSet"]["spec"]["updateStrategy"] == {"type": "RollingUpdate"}
    (apart,) = POD["spec"]["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert apart["topologyKey"] == "kubernetes.io/hostname"
    assert apart["labelSelector"]["matchLabels"] == APP
    # A stop takes up to five seconds, and a leader without a successor waits three more.
    assert POD["spec"]["terminationGracePeriodSeconds"] >= 20


def test_only_prometheus_reaches_the_admin_port() -> None:
    """It asks nobody who they are."""
    rules = KINDS["NetworkPolicy"]["spec"]["ingress"]
    (rule,) = (rule for rule in rules if {"port": "admin"} in rule["ports"])
    assert rule["ports"] == [{"port": "admin"}]
    (peer,) = rule["from"]  # both in one: pods with the label, in that namespace
    assert peer["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "monitoring"}
    assert peer["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "prometheus"}


def test_probes_ask_whether_it_lives_and_whether_it_is_ready() -> None:
    """A store is not restarted because it waits for its peers."""
    asked = {
        name: STORE[name]["httpGet"]["path"]
        for name in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert asked == {
        "startupProbe": "/healthz",
        "livenessProbe": "/healthz",
        "readinessProbe": "/readyz",
    }
    startup = STORE["startupProbe"]
    # It must allow for the recovery of a large log; docs/engineering-notes/restarting.md has times.
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 120


def test_nothing_more_is_allowed_than_the_image_needs() -> None:
    assert POD["spec"]["securityContext"]["runAsNonRoot"] is True
    assert STORE["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert POD["spec"]["automountServiceAccountToken"] is False
