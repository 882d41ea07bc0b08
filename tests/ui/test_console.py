"""The views of the console in a real browser: addresses, charts, one store, one shard, rights."""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec
import pytest
from logservice_client.sync import SyncLogClient

from logservice.cli.processes.local_cluster import LocalCluster
from logservice.server.monitor.cluster.console import StoreDetail
from logservice.server.monitor.cluster.rows import StoreRow
from logservice.server.monitor.cluster.work import (
    CatchingUp,
    DrainRow,
    OperatorAtWork,
    VersionRow,
    Work,
)
from logservice.server.monitor.own.history import FIGURES, Series
from logservice.server.monitor.port.guarded_pages import (
    GrantRow,
    GrantsPage,
    RecordRow,
    RecordsPage,
    Shown,
)
from tests.ui.looking import MARKUP, SIZES, click, forge, page, picture, text
from tools.chromium import Chromium

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]

VIEWS = {
    "findings": ("#/findings", "#findings-cards > *"),
    "history": ("#/history", "#history-charts .chart"),
    "work": ("#/work", "#work-parts table"),
    "holds": ("#/holds", "#claims tbody tr"),
    "writers": ("#/writers", "#claims tbody tr"),
    "sessions": ("#/sessions", "#claims tbody tr"),
    "grants": ("#/grants", "#grants .alarm"),
    "records": ("#/records/3", "#records .record"),
    "runbook": ("#/runbook/drain.md", "#runbook pre"),
    "store": ("#/store/store-1", "#store-parts table"),
    "shard": ("#/shard/3", "#shard-parts table"),
}
POINTS = 30
MINUTE_US = 60_000_000
NOW_US = 1_700_000_000_000_000


def go(browser: Chromium, address: str) -> None:
    browser.run(f"location.hash = {address!r}; 0")


def at(
    browser: Chromium, cluster: LocalCluster, address: str, shown: str, width: int = 1000
) -> None:
    """Open the page at an address and wait until what `shown` selects is there."""
    browser.call("Page.navigate", url="about:blank")
    browser.show(page(cluster) + address, width, 900, mobile=width < 500)
    browser.wait(f"document.querySelector({shown!r}) !== null")


def fits(browser: Chromium, name: str) -> None:
    """What is shown fits every window."""
    for width, height in SIZES:
        browser.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        assert browser.run("document.documentElement.scrollWidth") <= width
        picture(browser, f"{name}-{width}")


def key(browser: Chromium, name: str) -> None:
    for kind in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key=name, code=name)


def series(store: str, **figures: tuple[float, ...]) -> Series:
    values = {name: tuple(float(number) for number in range(POINTS)) for name in FIGURES}
    return Series(
        store=store,
        period_s=60,
        span_s=3600,
        times_us=tuple(NOW_US + number * MINUTE_US for number in range(POINTS)),
        units=dict(FIGURES),
        figures={**values, **figures},
    )


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_fits_its_window(browser: Chromium, cluster: LocalCluster, view: str) -> None:
    """At every width, light and dark; nothing comes from elsewhere, nothing fails."""
    address, shown = VIEWS[view]
    before = len(browser.requests)
    for number, (width, height) in enumerate(SIZES):
        dark = bool(number % 2)
        browser.call("Page.navigate", url="about:blank")
        browser.show(page(cluster) + address, width, height, dark=dark, mobile=width < 500)
        browser.wait(f"document.querySelector({shown!r}) !== null")
        browser.wait("document.querySelector('#live').textContent === 'live'")
        picture(browser, f"{view}-{width}-{'dark' if dark else 'light'}")
        assert browser.run("document.documentElement.scrollWidth") <= width
        seen = "[...document.querySelectorAll('main > .view')].filter((one) => !one.hidden).length"
        assert browser.run(seen) == 1
    hosts = {urlsplit(url).netloc for url in browser.requests[before:] if url.startswith("http")}
    assert hosts == {cluster.stores["store-1"].admin}


def test_stores_and_shards_have_addresses(browser: Chromium, cluster: LocalCluster) -> None:
    browser.call("Page.navigate", url="about:blank")
    browser.show(page(cluster), 1600, 1000)
    click(browser, "#shards tr[data-shard='3'] a")
    browser.wait("location.hash === '#/shard/3'")
    browser.wait("document.querySelector('#shard-head h2')?.textContent === 'Log log-3'")
    assert browser.run("document.querySelector('#overview').hidden") is True
    browser.run("history.back(); 0")
    browser.wait("!document.querySelector('#overview').hidden")
    click(browser, "#stores h3 a")
    browser.wait("document.querySelector('#store-head h2')?.textContent === 'Store store-1'")
    for address, said in (("#/store/nobody", "Nobody knows"), ("#/shard/999", "no shard 999")):
        go(browser, address)
        browser.wait(f"document.querySelector('main').textContent.includes({said!r})")
    go(browser, "#/%zz/%")
    browser.wait("!document.querySelector('#overview').hidden")


def test_what_others_said_is_text_in_every_view(browser: Chromium, cluster: LocalCluster) -> None:
    for address, shown in (
        ("#/holds", "#claims tbody tr"),
        ("#/writers", "#claims tbody tr"),
        ("#/shard/3", "#shard-parts table"),
        ("#/findings", "#findings-cards h3"),
    ):
        at(browser, cluster, address, shown)
        browser.wait("document.querySelector('main').textContent.includes('onerror')")
        assert browser.run("document.querySelectorAll('main img').length") == 0
        assert "broken" not in browser.run("document.title")


def test_a_chart_is_read_with_pointer_and_keys(browser: Chromium, cluster: LocalCluster) -> None:
    at(browser, cluster, "#/history", "#history-charts .chart")
    gap = tuple(float("nan") if number == 5 else 2.0 for number in range(POINTS))
    forge(browser, "history", series("store-1", append_p99_s=gap))
    click(browser, "#history-spans button[data-span=day]")
    plot = "document.querySelector('#history-charts .plot')"
    # Not the hours below it: those of the stores' own chart may be the same.
    browser.wait(f"{plot}.getAttribute('aria-label').includes('store-1 29/s')")
    assert "22:" in browser.run(f"{plot}.textContent")
    assert browser.run(f"{plot}.querySelectorAll('path.line').length") == 3
    holes = "[...document.querySelectorAll('.chart')][3].querySelector('path').getAttribute('d')"
    assert browser.run(f"{holes}.split('M').length - 1") == 2, "what is not known is a gap"
    browser.run(f"{plot}.focus(); 0")
    key(browser, "Home")
    tip = f"{plot}.querySelector('.tip')"
    assert browser.run(f"{tip}.hidden") is False
    assert "store-1: 0/s" in browser.run(f"{tip}.textContent")
    key(browser, "ArrowRight")
    assert "store-1: 1/s" in browser.run(f"{tip}.textContent")
    key(browser, "Escape")
    assert browser.run(f"{tip}.hidden") is True
    box = browser.run(
        f"(({{left, top, width}}) => [left, top, width])({plot}.getBoundingClientRect())"
    )
    x, y = box[0] + box[2] - 12, box[1] + 60
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    browser.wait(f"{tip}.textContent.includes('store-1: 29/s')")
    picture(browser, "chart")


def test_findings_lead_to_their_runbooks(browser: Chromium, cluster: LocalCluster) -> None:
    at(browser, cluster, "#/findings", "#findings-cards a")
    assert "logctl hold release 3 '<img" in text(browser, "#findings-cards")
    click(browser, "#findings-cards a")
    browser.wait("location.hash === '#/runbook/forgotten-hold.md'")
    browser.wait("document.querySelectorAll('#runbook pre').length > 0")
    assert browser.run("document.querySelectorAll('#runbook h2').length") == 1
    go(browser, "#/runbook/nothing.md")
    browser.wait("document.querySelector('#runbook').textContent.includes('does not carry')")
    go(browser, "#/runbook")
    browser.wait("document.querySelector('#runbook table') !== null")
    click(browser, "#runbook table a")
    browser.wait("location.hash.startsWith('#/runbook/') && location.hash.endsWith('.md')")


def under_way() -> Work:
    operator = OperatorAtWork(
        operator=7,
        shard=1,
        log="log-1",
        kind="move",
        cause="drain",
        step=MARKUP,
        age_ticks=1200,
        replica=9,
        store="store-2",
        from_store="store-1",
        error="",
        entries_to_go=100,
        lag_bytes=64 << 20,
        to_go_s=42.0,
        cancelled=False,
    )
    drain = DrainRow(
        store="store-1",
        mode="draining",
        mode_reason="a new board",
        members_left=40,
        leaders_left=2,
        leftovers=0,
        empty=False,
        repair_off_ticks=0,
        repair_off_reason="",
    )
    behind = CatchingUp(
        shard=2,
        log="log-2",
        replica=5,
        store="store-3",
        role="voter",
        lag_entries=9000,
        lag_bytes=9 << 20,
        to_go_s=7.0,
    )
    version = VersionRow(
        store="store-1", version="1.0", highest_version=2, used_version=1, behind=True
    )
    return Work(
        known=True,
        tick=1,
        operators=(operator,),
        drains=(drain,),
        catching_up=(behind,),
        behind=1,
        versions=(version,),
        cluster_version=1,
        next_version=2,
    )


def test_what_is_under_way_says_how_far_it_is(browser: Chromium, cluster: LocalCluster) -> None:
    """No drain happens here: the test forges the store's answers."""
    at(browser, cluster, "#/work", "#work-parts table")
    first = under_way()
    shown = "document.querySelector('#work-parts').textContent"
    forge(browser, "work", first)
    browser.wait(f"{shown}.includes('64 MiB left, 42 s to go')")
    for words in ("40 replicas, 2 leaders left", "waits for store-1", "store-1 → store-2", MARKUP):
        assert words in browser.run(shown)
    assert browser.run("document.querySelectorAll('#work-parts img').length") == 0
    (drain,) = first.drains
    later = msgspec.structs.replace(drain, members_left=10, leaders_left=0)
    forge(browser, "work", msgspec.structs.replace(first, drains=(later,)))
    browser.wait(f"{shown}.includes('10 replicas left')")
    bar = (
        "[...document.querySelectorAll('[role=progressbar]')]"
        ".find((one) => one.getAttribute('aria-label').includes('10 replicas'))"
    )
    assert browser.run(f"{bar}.getAttribute('aria-valuenow')") == "75"
    fits(browser, "work-busy")
    done = msgspec.structs.replace(drain, members_left=0, leaders_left=0, empty=True)
    forge(browser, "work", msgspec.structs.replace(first, drains=(done,), operators=()))
    browser.wait(f"{shown}.includes('it can be stopped')")


def test_claims_are_filtered(browser: Chromium, cluster: LocalCluster) -> None:
    with SyncLogClient(",".join(cluster.endpoints())) as client:
        for number in range(3):
            client.shard(20 + number).set_hold(f"backup-{number}", 1)
    at(browser, cluster, "#/holds?filter=backup-", "#claims tbody tr")
    browser.wait("document.querySelectorAll('#claims tbody tr').length === 3")
    browser.run(
        "const field = document.querySelector('#claims input'); field.value = 'backup-1';"
        " field.dispatchEvent(new Event('input'))"
    )
    browser.wait("document.querySelectorAll('#claims tbody tr').length === 1")
    assert "backup-1" in text(browser, "#claims tbody")
    click(browser, "#claims input[type=checkbox]")
    browser.wait("document.querySelector('#claims tbody').textContent === 'no hold matches'")


def test_a_silent_store_is_told(browser: Chromium, cluster: LocalCluster) -> None:
    at(browser, cluster, "#/store/store-1", "#store-parts table")
    row = StoreRow(store="store-1", error="it is gone", peer_address="10.0.0.1:1")
    forge(browser, "stores/detail", StoreDetail(row=row, status=None, time_us=NOW_US))
    browser.wait("document.querySelector('#store-parts').textContent.includes('does not answer')")
    assert "it is gone" in text(browser, "#store-head")
    picture(browser, "store-silent")


def test_in_plaintext_records_are_shown_and_no_access_list(
    browser: Chromium, cluster: LocalCluster
) -> None:
    at(browser, cluster, "#/records/3", "#records .record")
    assert "Read as anonymous" in text(browser, "#records")
    assert "x" * 100 in text(browser, "#records .record pre")
    at(browser, cluster, "#/grants", "#grants .alarm")
    assert "speaks plaintext" in text(browser, "main")


def test_a_single_point_is_drawn_as_a_point(browser: Chromium, cluster: LocalCluster) -> None:
    at(browser, cluster, "#/history", "#history-charts .chart")
    alone = tuple(2.0 if number == 7 else float("nan") for number in range(POINTS))
    forge(browser, "history", series("store-1", append_p99_s=alone))
    click(browser, "#history-spans button[data-span=day]")
    chart = "[...document.querySelectorAll('#history-charts .chart')][3]"
    browser.wait(f"{chart}.querySelectorAll('circle.dot').length === 3")
    assert browser.run(f"{chart}.querySelector('circle').getBBox().width") >= 5


def shown_value(data: bytes, size: int | None = None) -> Shown:
    return Shown(size=len(data) if size is None else size, hex=data.hex())


def some_records() -> RecordsPage:
    return RecordsPage(
        store="store-1",
        shard=3,
        lsn=50,
        next_lsn=56,
        first_lsn=1,
        applied_lsn=80,
        end_lsn=0,
        who="spiffe://d/cluster/c/client/reader",
        rows=(
            RecordRow(
                lsn=50, value=shown_value(MARKUP.encode() + "\n\u202eline".encode()), time_us=NOW_US
            ),
            RecordRow(lsn=51, value=shown_value(bytes(range(40)))),
            RecordRow(
                lsn=52,
                wide=True,
                value=shown_value(b"wide", 5000),
                key=shown_value(b"customer-7"),
                headers=((MARKUP, shown_value(b"1")),),
            ),
            RecordRow(lsn=53, count=2, gap="FENCED"),
            RecordRow(lsn=55, value=shown_value("ä".encode()[:1], 9), append_time_us=NOW_US),
        ),
    )


def test_records_as_text_and_bytes(browser: Chromium, cluster: LocalCluster) -> None:
    """Of every kind: the test forges the answers."""
    at(browser, cluster, "#/records/3", "#records .record")
    forge(browser, "records", some_records())
    browser.run(
        "window.asked = []; const fetched = window.fetch; window.fetch = (path, ...rest) =>"
        " { window.asked.push(path); return fetched(path, ...rest); }; 0"
    )
    click(browser, "#records .bar button")
    browser.wait("document.querySelectorAll('.record').length === 5")
    shown = text(browser, "#records")
    for words in (
        MARKUP,
        "\\u{202e}line",
        "customer-7",
        "fenced",
        "as applied on store-1",
        "10 11 12",
    ):
        assert words in shown
    assert "widethe first 4 B of 4.9 KiB" in shown
    assert "0000  c3" in shown, "the cut lies inside of its only character"
    assert browser.run("document.querySelectorAll('#records img').length") == 0
    buttons = "[...document.querySelectorAll('#records button')]"
    press = buttons + ".find((one) => one.textContent === '{}').click()"
    asked = "window.asked.filter((one) => one.includes('records?')).at(-1)"
    browser.run(press.format("Next"))
    browser.wait(f"{asked}.includes('lsn=56')")
    browser.run(press.format("Previous"))
    browser.wait(f"{asked}.includes('lsn=1&')")
    browser.run(press.format("Latest"))
    browser.wait(f"{asked}.includes('latest=1')")
    click(browser, "#records input[type=checkbox]")
    browser.wait(
        "document.querySelector('.record pre').textContent.startsWith('0000  3c 69 6d 67')"
    )
    picture(browser, "records-hex")
    click(browser, "#records input[type=checkbox]")
    fits(browser, "records-shown")


def test_grants_and_their_state(browser: Chromium, cluster: LocalCluster) -> None:
    at(browser, cluster, "#/grants", "#grants .alarm")
    found = GrantsPage(
        store="store-1",
        version=7,
        current=False,
        too_old=False,
        admins=("spiffe://d/cluster/c/client/root",),
        rows=(
            GrantRow(
                rule="deny", identity=MARKUP, scope="shard/1", roles=("append", "read"), logs=1
            ),
            GrantRow(
                rule="grant", identity="spiffe://d/x", scope="name/old-*", roles=("read",), logs=0
            ),
        ),
        offset=0,
        matching=2,
        rules=9,
        who="spiffe://d/cluster/c/client/root",
    )
    forge(browser, "grants", found)
    click(browser, "#grants .bar button")
    browser.wait("document.querySelectorAll('#grants tbody tr').length === 2")
    shown = text(browser, "#grants")
    assert MARKUP in shown
    assert "HAKeeper has not confirmed it lately" in shown
    assert "2 of 9" in shown
    assert browser.run("document.querySelectorAll('#grants .pill.warn').length") == 2
    picture(browser, "grants-shown")


def test_a_token_goes_with_each_question_and_stays_nowhere(
    browser: Chromium, cluster: LocalCluster
) -> None:
    at(browser, cluster, "#/records/3", "#records .record")
    refusal = '{"error": "nobody", "reason": "UNAUTHENTICATED", "metadata": {"who": "nobody"}}'
    browser.run(
        "window.shown = []; const fetched = window.fetch; window.fetch = (path, options) => {"
        " window.shown.push(options.headers.Authorization || '');"
        f" return path.includes('records?') ? Promise.resolve(new Response({refusal!r},"
        " {status: 401})) : fetched(path, options); }; 0"
    )
    click(browser, "#records .bar button")
    browser.wait("document.querySelector('#records input[type=password]') !== null")
    browser.run("document.querySelector('#records input[type=password]').value = 'a.b.c'; 0")
    click(browser, "#records input[type=password] + button")
    browser.wait("window.shown.includes('Bearer a.b.c')")
    assert browser.run("localStorage.length + sessionStorage.length + document.cookie.length") == 0
    assert "a.b.c" not in browser.run("document.documentElement.outerHTML + location.href")


def test_a_truncated_lsn_leads_to_the_first_record_that_is_left(
    browser: Chromium, cluster: LocalCluster
) -> None:
    at(browser, cluster, "#/records/3?lsn=1", "#records .alarm a")
    click(browser, "#records .alarm a")
    browser.wait("document.querySelector('#records .record b')?.textContent === '11'")
