"""The dashboard against Grafana's own types, and the objects of Prometheus's operator against its.

Neither Grafana nor the operator runs here. Both publish what their documents look like, as types of
TypeScript: `@grafana/schema` is Grafana's own package, and the operator's are made from the Go
types of its kinds. Each document is written as a constant of its type, and the compiler says what
is missing, wrong or unknown in it. `schemas/` has the versions, with the hashes of every file.

`make test-prometheus` runs it; where there is no npm, it is skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools import make_dashboard

SCHEMAS = Path(__file__).with_name("schemas")
MONITORING = Path(__file__).parents[2] / "deploy" / "kubernetes" / "monitoring"

# A constant of an enum's type has to be written as a member of the enum; in a document it is text.
# Types of panels are open where each kind of panel says more; that is put in its place.
PREAMBLE = """\
import type { Dashboard, Panel, RowPanel } from "@grafana/schema";
import type { Options as Stat }
    from "@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen";
import type { Options as TimeSeries } from
    "@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen";
import type { IServiceMonitor }
    from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/ServiceMonitor";
import type { IPrometheusRule }
    from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PrometheusRule";

type Text<T> = unknown extends T ? unknown
    : T extends string ? `${T}`
    : T extends number ? number
    : T extends object ? { [K in keyof T]: Text<T[K]> }
    : T;
type RowOf<P> = Text<Omit<RowPanel, "panels"> & { panels: P[] }>;
type PanelOf<Kind, Options> =
    Text<Omit<Panel, "type" | "options"> & { type: Kind, options: Options }>;
"""
PANELS = {
    "row": "RowOf<never>",
    "stat": 'PanelOf<"stat", Stat>',
    "timeseries": 'PanelOf<"timeseries", TimeSeries>',
}

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the types and the compiler are installed."""
    if shutil.which("npm") is None:
        if os.environ.get("LOGSERVICE_REQUIRE_NPM") == "1":
            pytest.fail("npm is not installed")
        pytest.skip("npm is not installed")
    folder = tmp_path_factory.mktemp("schemas")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(SCHEMAS / name, folder)
    words = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


def complaints(compiler: Path, constants: list[tuple[str, Any]]) -> list[str]:
    """What the compiler says of documents, each with its type."""
    written = [
        f"export const document{number}: {kind} = {json.dumps(document, indent=1)};\n"
        for number, (kind, document) in enumerate(constants)
    ]
    (compiler / "documents.ts").write_text(PREAMBLE + "".join(written))
    options = "--noEmit --strict --skipLibCheck --module nodenext --moduleResolution nodenext"
    words = ["npx", "--no-install", "tsc", *options.split(), "--target", "es2022", "documents.ts"]
    done = subprocess.run(words, cwd=compiler, capture_output=True, text=True)
    said = [line for line in done.stdout.splitlines() if ": error TS" in line]
    assert (done.returncode == 0) == (not said), done.stdout + done.stderr
    return said


def dashboard() -> list[tuple[str, Any]]:
    """The dashboard without its panels, and each of them."""
    document = json.loads(make_dashboard.TARGET.read_text(encoding="utf-8"))
    panels = document.pop("panels")
    return [("Text<Dashboard>", document), *((PANELS[one["type"]], one) for one in panels)]


def objects() -> list[tuple[str, Any]]:
    files = ("service-monitor.yaml", "prometheus-rule.yaml")
    found = [one for name in files for one in yaml.safe_load_all((MONITORING / name).read_text())]
    assert [one["kind"] for one in found] == ["ServiceMonitor", "PrometheusRule", "PrometheusRule"]
    return [(f"Text<I{one['kind']}>", one) for one in found]


def test_grafana_takes_the_dashboard(compiler: Path) -> None:
    assert complaints(compiler, dashboard()) == []


def test_the_operator_takes_its_objects(compiler: Path) -> None:
    assert complaints(compiler, objects()) == []


def test_what_is_wrong_is_found(compiler: Path) -> None:
    wrong = dashboard() + objects()
    wrong[0][1]["templating"]["list"][1]["multy"] = True
    number = next(number for number, one in enumerate(wrong) if one[1].get("type") == "stat")
    wrong[number][1]["options"]["colorMode"] = "loud"
    wrong[number + 1][1]["gridPos"]["w"] = "wide"
    wrong[-3][1]["spec"]["endpoints"][0]["port"] = 7601
    del wrong[-1][1]["spec"]["groups"][0]["rules"][0]["expr"]
    found = complaints(compiler, wrong)
    assert len(found) == 5, found
    for text, line in zip(("multy", "loud", "number", "string", "expr"), found, strict=True):
        assert text in line
