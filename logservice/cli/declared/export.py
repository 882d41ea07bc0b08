"""export: the file that declares what a cluster is. `plan` finds nothing to do for it.

A log whose keys have their usual values names only the number of its replicas: the usual value of
that is a setting. A closed log is a comment, because a cluster that does not have it would get an
open one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from logservice import bounds
from logservice.cli.declared.declaration import RATES
from logservice.cli.declared.present import Present, PresentLog
from logservice.cli.processes.toml_text import assignments, toml_key

_USUAL: Final[Mapping[str, object]] = {
    "witnesses": 0,
    "protected": False,
    "zone_rule": "best-effort",
    "leader_zone": "",
    "learners": {},
    "max_bytes_per_s": 0,
    "max_records_per_s": 0,
    "weight": bounds.SHARD_WEIGHT_DEFAULT,
    "retention_age_s": 0,
    "retention_bytes": 0,
    "retention_records": 0,
    "labels": {},
}
"""What `logctl shard create` makes where it is told nothing else."""


def exported(present: Present, *, ids: bool) -> str:
    """The text of the file. `ids`: it names the ids of the logs, too, so that a new cluster gives
    them the same ones.
    """
    return "\n".join(_lines(present, ids=ids))


def _lines(present: Present, *, ids: bool) -> Iterator[str]:
    # An empty part is said before the first table, where a key is one of the whole file.
    parts = ("grants", "denials", "quotas")
    empty: dict[str, object] = {part: [] for part in parts if not getattr(present, part)}
    yield from assignments({"cluster_id": present.cluster_id, **empty})
    yield ""
    yield "[cluster]"
    settings = {
        name: value for name, value in present.settings.items() if value or name not in RATES
    }
    yield from assignments(settings)
    for log in present.logs.values():
        yield ""
        if log.state == "closed":
            yield f"# closed: {toml_key(log.name)}"
            continue
        yield f"[logs.{toml_key(log.name)}]"
        yield from assignments(_keys(log, ids=ids))
    for part, rules in (("grants", present.grants), ("denials", present.denials)):
        for (identity, scope), roles in rules.items():
            yield ""
            yield f"[[{part}]]"
            yield from assignments({"identity": identity, "scope": scope, "roles": roles})
    for identity, values in present.quotas.items():
        yield ""
        yield "[[quotas]]"
        yield from assignments({"identity": identity, **values})


def _keys(log: PresentLog, *, ids: bool) -> dict[str, object]:
    keys: dict[str, object] = {"id": log.id} if ids else {}
    keys |= {name: value for name, value in log.values.items() if value != _USUAL.get(name)}
    if log.values["witnesses"]:
        keys["waive_g1"] = True
    return keys
