"""docs/tables.md: its Python runs, and its options are the program's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from logservice_client.testing import local_cluster
from logservice_delta.command import HOLD_TTL_S, parse_arguments

PAGE = (Path(__file__).parents[2] / "docs" / "tables.md").read_text()


@pytest.mark.processes
async def test_a_table_that_follows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {"__name__": "documented"}
    exec(compile(block, "tables.md", "exec"), names)
    uri = str(tmp_path / "t")
    DeltaTable.create(uri, pa.schema([("key", pa.string()), ("amount", pa.int64())]))
    with local_cluster() as cluster:
        monkeypatch.setenv("LOGSERVICE_ENDPOINTS", ",".join(cluster.endpoints))
        async with cluster.async_client() as client:
            log = client.shard(1)
            for records in ([b"a=1", b"b=2"], [b"a=3"], [b"c=4", b"c=5"]):
                await log.append(records)
                assert await names["bring"](uri, 1) == len(records)
            assert await names["bring"](uri, 1) == 0
    found = DeltaTable(uri).to_pyarrow_table().sort_by("key").to_pydict()
    assert found == {"key": ["a", "b", "c"], "amount": [3, 2, 5]}


def test_the_options_are_the_programs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_arguments(["--help"])
    program = set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) - {"--help"}
    section = PAGE.partition("## Options")[2].partition("\n## ")[0]
    table = "\n".join(line for line in section.splitlines() if line.startswith("|"))
    assert set(re.findall(r"--[a-z]+(?:-[a-z]+)*", table)) == program
    assert f"{HOLD_TTL_S:,}".replace(",", " ") + " s" in table
    made = parse_arguments(["--log", "a", "--table", "t"])
    assert (made.job, made.commit_mib, made.commit_s, made.hold_ttl) == (
        "records",
        64,
        10,
        HOLD_TTL_S,
    )
