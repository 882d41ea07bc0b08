"""Writes deploy/kubernetes/monitoring/prometheus-rule.yaml; `--check` compares the file instead.

The operator of Prometheus takes rules as objects of its own, each with the groups of a rule file.
The text of the two files of deploy/prometheus/ is kept as it is, comments included; it is only
indented.
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Final

_DEPLOY: Final = Path(__file__).resolve().parent.parent / "deploy"
TARGET: Final = _DEPLOY / "kubernetes" / "monitoring" / "prometheus-rule.yaml"
_FILES: Final = {"logservice-rules": "rules.yml", "logservice-alerts": "alerts.yml"}
"""Rule files of deploy/prometheus by the name of their object. The alerts are one by themselves:
only they have a place for runbooks, which monitoring/kustomization.yaml fills in.
"""
_OBJECT: Final = """\
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: {name}
  namespace: logservice
  labels:
    app.kubernetes.io/name: logservice
spec:
"""
_HEADER: Final = """\
# Made from deploy/prometheus/ by `python -m tools.make_prometheus_rule`: change it there.
"""


def text() -> str:
    """The whole file."""
    objects = []
    for name, file in _FILES.items():
        rules = (_DEPLOY / "prometheus" / file).read_text(encoding="utf-8")
        objects.append(_OBJECT.format(name=name) + textwrap.indent(rules, "  "))
    return _HEADER + "---\n".join(objects)


def main(arguments: list[str]) -> int:
    """Write, or compare with ``--check``; returns the exit code."""
    if "--check" in arguments:
        same = TARGET.exists() and TARGET.read_text(encoding="utf-8") == text()
        print("the rules are up to date" if same else f"{TARGET} differs: run without --check")
        return 0 if same else 1
    TARGET.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
