"""docs/client.md: its blocks of Python run as they stand, one after the other, on real stores."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from logservice_client.bounds import (
    OUTAGE_TOLD_S,
    PIPELINED_BYTES_MAX,
    PIPELINED_RECORDS_MAX,
    TIMEOUT_DEFAULT_S,
)

from tests.client.served_on_a_thread import served_on_a_thread

PAGE = Path(__file__).parents[2] / "docs" / "client.md"


def test_the_blocks_run(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 10
    names: dict[str, Any] = {"__name__": "documented"}
    with served_on_a_thread() as stores:
        monkeypatch.setenv("LOGSERVICE_ENDPOINTS", ",".join(stores.endpoints))
        for number, block in enumerate(blocks, 1):
            exec(compile(block, f"client.md, block {number}", "exec"), names)
        assert names["caught_up_at"] == []
        assert len(names["chain"]) == 100


def test_the_figures_are_the_bounds() -> None:
    text = PAGE.read_text()
    assert f"{PIPELINED_RECORDS_MAX:,}".replace(",", " ") + " records" in text
    assert f"{PIPELINED_BYTES_MAX >> 20} MiB" in text
    assert f"({TIMEOUT_DEFAULT_S:.0f} by default" in text
    assert f"after {OUTAGE_TOLD_S:.0f} seconds" in text
