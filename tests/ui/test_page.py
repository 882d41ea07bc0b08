"""The page of the admin port in a real browser, over a real cluster that loses a store.

`LOGSERVICE_SCREENSHOTS` names a folder for pictures to look at. `make test-ui` brings the browser.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest
from logservice_client.sync import SyncLogClient

from logservice.cli.processes.local_cluster import LocalCluster
from logservice.server.monitor.cluster.rows import OperatorRow
from tests.local_stores import kill_stores
from tools.chromium import Chromium, program

SHARDS = 60
MARKUP = "<img src=x onerror=document.title='broken'>"
SETTINGS: dict[str, dict[str, object]] = {
    "storage": {"segment_bytes": 4 << 20, "ballast_bytes": 0},
    "raft": {"tick_ms": 20},
    "hakeeper": {"heartbeat_interval_s": 0.5, "store_timeout_s": 300},
}
SIZES = ((400, 800), (1600, 1000))

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    if program() is None:
        if os.environ.get("LOGSERVICE_REQUIRE_BROWSER"):
            pytest.fail("no Chromium")
        pytest.skip("no Chromium here; `make test-ui` installs it")
    running = LocalCluster.create(
        tmp_path_factory.mktemp("cluster") / "c", shards=SHARDS, settings=SETTINGS
    )
    try:
        running.up(90)
        running.wait_ready(90, 3)
        with SyncLogClient(",".join(running.endpoints())) as client:
            shard = client.shard(3)
            shard.acquire_writer(MARKUP)
            shard.append([b"x" * 100] * 50)
            shard.set_hold(MARKUP, 11)
            shard.truncate(40)
        yield running
    finally:
        kill_stores(running)


@pytest.fixture(scope="module")
def browser(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with Chromium(tmp_path_factory.mktemp("profile")) as running:
        yield running


def page(cluster: LocalCluster, store: str = "store-1") -> str:
    return f"http://{cluster.stores[store].admin}/ui"


def picture(browser: Chromium, name: str) -> None:
    folder = os.environ.get("LOGSERVICE_SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        browser.screenshot(Path(folder) / f"{name}.png")


def rows(browser: Chromium) -> list[str]:
    found = browser.run(
        "[...document.querySelectorAll('#shards tbody tr')].map((row) => row.dataset.shard)"
    )
    assert isinstance(found, list)
    return found


def click(browser: Chromium, selector: str) -> None:
    browser.run(f"document.querySelector({selector!r}).click()")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_the_page_fits_its_window(
    browser: Chromium, cluster: LocalCluster, size: tuple[int, int], dark: bool
) -> None:
    width, height = size
    browser.show(page(cluster), width, height, dark=dark, mobile=width < 500)
    browser.wait("document.querySelectorAll('.card .good').length === 3")
    picture(browser, f"{width}-{'dark' if dark else 'light'}")
    assert browser.run("document.documentElement.scrollWidth") <= width
    browser.wait("document.querySelector('#stores-count').textContent === '3'")
    ground = browser.run("getComputedStyle(document.body).backgroundColor")
    brightness = sum(int(part) for part in ground.strip("rgb()").split(","))
    assert (brightness < 200) == dark
    assert browser.console == []


def test_it_loads_nothing_from_elsewhere(browser: Chromium, cluster: LocalCluster) -> None:
    browser.show(page(cluster), 1600, 1000)
    hosts = {urlsplit(url).netloc for url in browser.requests if url.startswith("http")}
    assert hosts == {cluster.stores["store-1"].admin}


def test_what_others_said_is_text(browser: Chromium, cluster: LocalCluster) -> None:
    browser.show(page(cluster), 1600, 1000)
    writer = "document.querySelector('#shards tr[data-shard=\"3\"] td:last-child').textContent"
    browser.wait(f"{writer}.includes('onerror')")
    assert browser.run("document.querySelectorAll('#shards img').length") == 0
    assert "broken" not in browser.run("document.title")
    held = "document.querySelector('#shards tr[data-shard=\"3\"]').textContent"
    browser.wait(f"{held}.includes('held')")


def test_sort_filter_and_pages(browser: Chromium, cluster: LocalCluster) -> None:
    browser.show(page(cluster), 1600, 1000)
    assert rows(browser) == [str(number) for number in range(25)]
    click(browser, "#next")
    click(browser, "#next")
    assert rows(browser) == [str(number) for number in range(50, SHARDS + 1)]
    click(browser, "th[data-key=shard] button")
    assert rows(browser)[:2] == [str(SHARDS), str(SHARDS - 1)]
    click(browser, "th[data-key=applied_lsn] button")
    # A store whose answer comes too late for one picture appears in the next.
    browser.wait("document.querySelector('#shards tbody tr').dataset.shard === '3'")
    browser.run(
        "const field = document.querySelector('#filter'); field.value = 'LOG-5';"
        " field.dispatchEvent(new Event('input'))"
    )
    assert set(rows(browser)) == {"5", *(str(number) for number in range(50, 60))}
    # A refresh keeps what a person chose.
    drawn = browser.run("Number(document.documentElement.dataset.drawn)")
    browser.wait(f"Number(document.documentElement.dataset.drawn) > {drawn}")
    assert browser.run("document.querySelector('#filter').value") == "LOG-5"
    assert len(rows(browser)) == 11
    click(browser, "#troubled")
    # On a busy machine a shard may be between two leaders; the page shows that as trouble.
    browser.wait("document.querySelector('#shards tbody').textContent === 'no shard matches'")


def test_a_lost_store_then_a_lost_majority(browser: Chromium, cluster: LocalCluster) -> None:
    browser.show(page(cluster, "store-2"), 1600, 1000)
    cluster.kill("store-3")
    browser.wait("document.querySelectorAll('.card.bad-edge').length === 1")
    browser.wait("document.querySelector('#shards').textContent.includes('store-3')")
    browser.wait("!document.querySelector('#alarms').textContent.includes('Without a leader')")
    browser.wait("document.querySelectorAll('#shards .replica.lost').length >= 25")
    picture(browser, "lost-store")
    cluster.kill("store-1")
    browser.wait("document.querySelector('#alarms').textContent.includes('Without a leader')")
    browser.wait("document.querySelector('#alarms').textContent.includes('HAKeeper')")
    browser.wait("document.querySelectorAll('#shards .pill.good').length === 0")
    picture(browser, "lost-majority")
    browser.show(page(cluster, "store-2"), 400, 800, mobile=True)
    picture(browser, "lost-majority-400")
    assert browser.run("document.documentElement.scrollWidth") <= 400
    cluster.start("store-1")
    cluster.start("store-3")
    browser.wait("document.querySelectorAll('.card .good').length === 3")
    browser.wait("document.querySelector('#live').textContent === 'live'")


def test_repairs_and_events_are_listed(browser: Chromium, cluster: LocalCluster) -> None:
    """No repair happens here: the test forges the store's answer that reports one."""
    browser.show(page(cluster), 1600, 1000)
    complaints = list(browser.console)
    row = OperatorRow(
        operator=1,
        shard=7,
        kind="replace",
        step="<b>catch up</b>",
        age_ticks=1200,
        replica=9,
        store="store-4",
        error="no room",
    )
    said = json.dumps(msgspec.json.encode([row]).decode())
    browser.run(
        f"const real = window.fetch; window.fetch = (path, ...rest) => path.includes('operators')"
        f" ? Promise.resolve(new Response({said})) : real(path, ...rest); 0"
    )
    shown = "document.querySelector('#operators').textContent"
    browser.wait(f"{shown}.includes('replace replica 9 on store-4: <b>catch up</b>, 2 min')")
    assert "no room" in browser.run(shown)
    assert browser.run("document.querySelector('#operators-count').textContent") == "1"
    assert browser.run("document.querySelectorAll('#events time').length") > 0
    picture(browser, "repairs")
    assert browser.console == complaints


def test_the_page_says_when_its_store_is_gone(browser: Chromium, cluster: LocalCluster) -> None:
    browser.show(page(cluster), 1600, 1000)
    cluster.stop("store-1")
    browser.wait("document.querySelector('#live').className.includes('lost')")
    cluster.start("store-1")
    browser.wait("document.querySelector('#live').textContent === 'live'")
