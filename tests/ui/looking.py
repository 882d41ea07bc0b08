"""What the tests of the page do in the browser."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from logservice.cli.processes.local_cluster import LocalCluster
from logservice.server.monitor.cluster.rows import HAKeeperAnswer, ShardRow, build
from logservice.server.monitor.own.status import StoreStatus
from logservice.server.monitor.port.shard_page import Choice, ShardPage, ShardPages
from tools.chromium import Chromium

SHARDS = 60
MARKUP = "<img src=x onerror=document.title='broken'>"
SETTINGS: dict[str, dict[str, object]] = {
    "storage": {"segment_bytes": 4 << 20, "ballast_bytes": 0},
    "raft": {"tick_ms": 20},
    "hakeeper": {"heartbeat_interval_s": 0.5, "store_timeout_s": 300},
}
SIZES = ((400, 800), (1280, 800), (1920, 1000))


def page(cluster: LocalCluster, store: str = "store-1") -> str:
    return f"http://{cluster.stores[store].admin}/ui"


def picture(browser: Chromium, name: str) -> None:
    folder = os.environ.get("LOGSERVICE_SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        browser.screenshot(Path(folder) / f"{name}.png")


def forge(browser: Chromium, part: str, rows: object) -> None:
    """From now on the page gets `rows` for that part of the report, instead of the store's."""
    said = json.dumps(msgspec.json.encode(rows).decode())
    browser.run(
        "window.real ??= window.fetch; window.forged ??= {};"
        f" window.forged['/api/v1/{part}'] = {said};"
        " window.fetch = (path, ...rest) => path.split('?')[0] in window.forged"
        " ? Promise.resolve(new Response(window.forged[path.split('?')[0]]))"
        " : window.real(path, ...rest); 0"
    )


def page_of(*shards: ShardRow) -> ShardPage:
    report = build(HAKeeperAnswer(None, -1.0, ""), {}, StoreStatus(), shards=shards)
    return ShardPages().page(report, Choice())


def text(browser: Chromium, selector: str) -> str:
    found = browser.run(f"document.querySelector({selector!r}).textContent")
    assert isinstance(found, str)
    return found


def choose(browser: Chromium, selector: str, value: str) -> None:
    browser.run(
        f"const field = document.querySelector({selector!r}); field.value = {value!r};"
        " field.dispatchEvent(new Event('change'))"
    )


def rows(browser: Chromium) -> list[str]:
    found = browser.run(
        "[...document.querySelectorAll('#shards tbody tr')].map((row) => row.dataset.shard)"
    )
    assert isinstance(found, list)
    return found


def shows(browser: Chromium, shards: Sequence[str]) -> None:
    """Wait until the table shows them: their rows come from the store."""
    expected = " ".join(shards)
    browser.wait(
        "[...document.querySelectorAll('#shards tbody tr')].map((row) => row.dataset.shard)"
        f".join(' ') === {expected!r}"
    )


def click(browser: Chromium, selector: str) -> None:
    browser.run(f"document.querySelector({selector!r}).click()")
