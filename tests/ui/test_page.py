"""The page of the admin port in a real browser, over a real cluster that loses a store.

`LOGSERVICE_SCREENSHOTS` names a folder for pictures to look at. `make test-ui` brings the browser.
"""

from __future__ import annotations

import importlib.metadata
from urllib.parse import urlsplit

import pytest
from logservice_client.sync import SyncLogClient
from logservice_wire.rpcs import HEARTBEAT
from logservice_wire.v1 import hakeeper_pb2

from logservice.cli.ctl.direct_call import call_store
from logservice.cli.processes.local_cluster import LocalCluster
from logservice.server.monitor.cluster.rows import (
    FeedRow,
    OperatorRow,
    ReplicaRow,
    ShardRow,
    StoreRow,
    TnShardRow,
)
from tests.ui.looking import (
    MARKUP,
    SHARDS,
    SIZES,
    choose,
    click,
    forge,
    page,
    page_of,
    picture,
    rows,
    shows,
    text,
)
from tools.chromium import Chromium

HEIGHTS_MAX = {400: 4200, 1280: 3600, 1920: 3000}
"""How long the overview is at most, of three stores and 60 logs: a telephone's was 5 700."""

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_the_page_fits_its_window(
    browser: Chromium, cluster: LocalCluster, size: tuple[int, int], dark: bool
) -> None:
    width, height = size
    complaints = list(browser.console)
    browser.show(page(cluster), width, height, dark=dark, mobile=width < 500)
    browser.wait("document.querySelectorAll('.card .good').length === 3")
    picture(browser, f"{width}-{'dark' if dark else 'light'}")
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run("document.documentElement.scrollHeight") <= HEIGHTS_MAX[width]
    browser.wait("document.querySelector('#stores-count').textContent === '3'")
    ground = browser.run("getComputedStyle(document.body).backgroundColor")
    brightness = sum(int(part) for part in ground.strip("rgb()").split(","))
    assert (brightness < 200) == dark
    assert browser.console == complaints


def test_the_head_names_the_product_and_its_version(
    browser: Chromium, cluster: LocalCluster
) -> None:
    browser.show(page(cluster), 1280, 800)
    browser.wait("document.querySelector('#version').textContent !== ''")
    version = importlib.metadata.version("logservice")
    assert text(browser, "header h1").split() == ["logservice", version]
    assert text(browser, "#cluster") == cluster.cluster_id


def test_tabs_that_do_not_fit_say_so(browser: Chromium, cluster: LocalCluster) -> None:
    def ends() -> list[bool]:
        found = browser.run(
            "['more-left', 'more-right'].map((one) => document.querySelector('#views')"
            ".classList.contains(one))"
        )
        assert isinstance(found, list)
        return found

    browser.call("Page.navigate", url="about:blank")
    browser.show(page(cluster), 400, 800, mobile=True)
    browser.wait("document.querySelector('#views.more-right') !== null")
    assert ends() == [False, True]
    sign = "getComputedStyle(document.querySelector('#views'), '::after')"
    assert browser.run(f"{sign}.content") == '"\u203a"'
    browser.run("document.querySelector('#views').scrollLeft = 60; 0")
    browser.wait("document.querySelector('#views.more-left.more-right') !== null")
    browser.run("document.querySelector('#views').scrollLeft = 9999; 0")
    browser.wait("document.querySelector('#views.more-right') === null")
    assert ends() == [True, False]
    browser.show(page(cluster), 1280, 800)
    browser.wait("document.querySelector('#views.more-left, #views.more-right') === null")


@pytest.mark.parametrize("width", [1920, 2560])
def test_a_wide_window_is_used(browser: Chromium, cluster: LocalCluster, width: int) -> None:
    browser.show(page(cluster), width, 1000)
    browser.wait("document.querySelectorAll('.card .good').length === 3")
    box = "document.querySelector({!r}).getBoundingClientRect()"
    for part in ("#tiles", "#stores", "#histories"):
        last = box.format(f"{part} > :last-child")
        assert browser.run(f"{last}.right") > 0.97 * width, part
    shards, feed = box.format("#shards"), box.format("#feed")
    assert browser.run(f"{feed}.left >= {shards}.right")
    picture(browser, f"wide-{width}")


def test_what_leads_elsewhere_looks_like_a_link(browser: Chromium, cluster: LocalCluster) -> None:
    browser.show(page(cluster), 1280, 800)
    browser.wait("document.querySelectorAll('main a').length > 10")
    plain = browser.run(
        "[...document.querySelectorAll('main a')].filter((one) =>"
        " !getComputedStyle(one).textDecorationLine.includes('underline')"
        " || getComputedStyle(one).color === getComputedStyle(document.body).color).length"
    )
    assert plain == 0
    leads = "document.querySelector('#shards tr[data-shard=\"3\"] .name a').getAttribute('href')"
    assert browser.run(leads) == "#/shard/3"


def test_no_word_of_the_implementation(browser: Chromium, cluster: LocalCluster) -> None:
    """What only an author knows is said in words, with more of them under the pointer."""
    browser.show(page(cluster), 1280, 800)
    browser.wait("document.querySelectorAll('.card .good').length === 3")
    shown = text(browser, "main")
    for word in ("loop stalls", "directory copy", "event loop", "forks behind"):
        assert word not in shown
    titled = browser.run(
        "Object.fromEntries([...document.querySelectorAll('.card dt')]"
        ".map((one) => [one.textContent, one.parentNode.title]))"
    )
    assert isinstance(titled, dict)
    assert all(len(titled[word]) > 30 for word in ("pauses", "list of logs"))


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
    shows(browser, [str(number) for number in range(50, SHARDS + 1)])
    click(browser, "th[data-key=shard] button")
    shows(browser, [str(SHARDS - number) for number in range(25)])
    whole = "/v1\\/shards$/.test(one.name)"
    larger = f"performance.getEntriesByType('resource').filter((one) => {whole})"
    assert browser.run(f"{larger}.length") == 0, "the page asks for what it shows"
    click(browser, "th[data-key=applied_lsn] button")
    # A store whose answer comes too late for one picture appears in the next.
    browser.wait("document.querySelector('#shards tbody tr').dataset.shard === '3'")
    browser.run(
        "const field = document.querySelector('#filter'); field.value = 'LOG-5';"
        " field.dispatchEvent(new Event('input'))"
    )
    browser.wait("document.querySelectorAll('#shards tbody tr').length === 11")
    assert set(rows(browser)) == {"5", *(str(number) for number in range(50, 60))}
    assert text(browser, "#shards-count") == f"11 of {SHARDS + 1}"
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
    forge(browser, "operators", [row])
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


def test_a_service_and_the_command_that_waits_for_it(
    browser: Chromium, cluster: LocalCluster
) -> None:
    beat = hakeeper_pb2.HeartbeatRequest(
        service_id="cn-1",
        kind="cn",
        address="10.0.0.7:6001",
        labels={"zone": MARKUP},
        replayed=[hakeeper_pb2.ReplayedLsn(shard_id=1), hakeeper_pb2.ReplayedLsn(shard_id=999)],
    )
    browser.show(page(cluster), 1600, 1000)
    browser.wait("document.querySelector('#services').textContent.includes('no service')")
    call_store(cluster.endpoints()[0], HEARTBEAT, beat, 30, None)
    with SyncLogClient(",".join(cluster.endpoints())) as client:
        client.hakeeper.send_service_command("cn-1", "reload", b"")
    row = "[...document.querySelectorAll('#services tr[data-service=cn-1] td')]"
    browser.wait(f"{row}[5]?.textContent === '1'")  # the command that waits
    cells = browser.run(f"{row}.map((cell) => cell.textContent)")
    assert cells[:4] == ["cn-1", "cn", "working", "10.0.0.7:6001"]
    browser.wait(f"{row}[6]?.textContent === '1 log'")  # the other one does not exist
    assert cells[7] == f"zone={MARKUP}"
    assert browser.run("document.querySelectorAll('#services img').length") == 0
    assert text(browser, "#services-count") == "1"
    browser.show(page(cluster), 400, 800, mobile=True)
    picture(browser, "services-400")
    assert browser.run("document.documentElement.scrollWidth") <= 400


def test_tn_shards_and_who_serves_them(browser: Chromium, cluster: LocalCluster) -> None:
    """The table is there once there is a TN shard; what others named is text."""
    browser.show(page(cluster), 1600, 1000)
    assert browser.run("document.querySelector('#tn').hidden") is True
    with SyncLogClient(",".join(cluster.endpoints())) as client:
        number = client.hakeeper.create_tn_shard(2, identity=MARKUP)
        cells = f"document.querySelectorAll('#tn-shards tr[data-tn=\"{number}\"] td')"
        browser.wait(f"{cells}.length === 7")
        shown = browser.run(f"[...{cells}].map((one) => one.textContent)")
        assert shown[:3] == [str(number), "log-2 (2)", "nobody"]
        assert shown[5:] == ["0", MARKUP]
        assert browser.run("document.querySelectorAll('#tn-shards img').length") == 0
        assert browser.run("document.querySelector('#tn').hidden") is False
        given = TnShardRow(
            tn_shard=number,
            shard=2,
            log="log-2",
            service="tn-1",
            replica=4,
            standing="served",
            standing_ticks=1200,
            identity="",
        )
        forge(browser, "tn-shards", [given])
        browser.wait(f"{cells}[2].textContent === 'served'")
        shown = browser.run(f"[...{cells}].map((one) => one.textContent)")
        assert shown[3:] == ["tn-1", "2 min", "4", shown[6]]
        browser.show(page(cluster), 400, 800, mobile=True)
        browser.wait(f"{cells}.length === 7")
        picture(browser, "tn-400")
        assert browser.run("document.documentElement.scrollWidth") <= 400
        client.hakeeper.delete_tn_shard(number)


def test_a_store_says_why_people_left_it_alone(browser: Chromium, cluster: LocalCluster) -> None:
    browser.show(page(cluster), 1600, 1000)
    modes = {"read-only": "<b>a slow disk", "open": "of no use any more"}
    rows = [
        StoreRow(
            store=f"s-{mode}", alive=True, answers=True, ready=True, mode=mode, mode_reason=why
        )
        for mode, why in modes.items()
    ]
    forge(browser, "stores", rows)
    browser.wait("document.querySelector('#stores').textContent.includes('s-read-only')")
    shown = text(browser, "#stores")
    assert "read-only: <b>a slow disk" in shown
    assert "of no use" not in shown


def test_the_clusters_events_come_by_themselves_and_can_be_held_and_filtered(
    browser: Chromium, cluster: LocalCluster
) -> None:
    browser.show(page(cluster), 1600, 1000)
    complaints = list(browser.console)
    told = "document.querySelectorAll('#feed li[data-revision]')"
    browser.wait(f"{told}.length > 5")
    seen = browser.run(f"[...{told}].map((one) => +one.dataset.revision)")
    assert seen == sorted(seen, reverse=True), "the newest one first"
    click(browser, "#follow")
    with SyncLogClient(",".join(cluster.endpoints())) as client:
        client.hakeeper.create_shard(name="new-log")
    browser.wait("document.querySelector('#feed-count').textContent.includes('newer')")
    assert "new-log" not in text(browser, "#feed"), "a person reads; the list stays"
    choose(browser, "#kind", "log-created")
    click(browser, "#follow")
    browser.wait("document.querySelector('#feed').textContent.includes('new-log')")
    kinds = "[...document.querySelectorAll('#feed .from')].map((one) => one.textContent)"
    assert set(browser.run(kinds)) == {"log-created"}
    # A refresh keeps what a person chose.
    drawn = browser.run("Number(document.documentElement.dataset.drawn)")
    browser.wait(f"Number(document.documentElement.dataset.drawn) > {drawn}")
    assert browser.run("document.querySelector('#kind').value") == "log-created"
    assert set(browser.run(kinds)) == {"log-created"}
    picture(browser, "events-1600")
    assert browser.console == complaints


def test_the_page_goes_on_behind_the_event_that_it_saw_last(
    browser: Chromium, cluster: LocalCluster
) -> None:
    """What it has not seen, it says; the test forges the answers."""

    def events(*revisions: int) -> list[FeedRow]:
        return [
            FeedRow(
                revision=one, tick=one, kind="verb", shard=0, replica=0, store="", text=f"<i>{one}"
            )
            for one in revisions
        ]

    browser.show(page(cluster), 1600, 1000)
    newest = browser.run("+document.querySelector('#feed li[data-revision]').dataset.revision")
    far = newest + 1000
    forge(browser, "events", events(far + 1, far))
    browser.wait(f"document.querySelector('#feed li').dataset.revision === '{far + 1}'")
    assert f"999 events came in between: logctl events --after {newest}" in text(browser, "#feed")
    assert f"<i>{far}" in text(browser, "#feed")
    forge(browser, "events", events(far + 2, far + 1, far))
    browser.wait(f"document.querySelector('#feed li').dataset.revision === '{far + 2}'")
    assert text(browser, "#feed").count("came in between") == 1
    assert text(browser, "#feed").count(f"<i>{far + 1}") == 1


def test_a_learner_does_not_stand_in_for_a_voter(browser: Chromium, cluster: LocalCluster) -> None:
    browser.show(page(cluster), 1600, 1000)

    def shard(number: int, voters: int, learners: int) -> ShardRow:
        members = [ReplicaRow(replica=one, store=f"s{one}", role="voter") for one in range(voters)]
        readers = [
            ReplicaRow(replica=9 + one, store=f"r{one}", role="learner", zone="z9")
            for one in range(learners)
        ]
        return ShardRow(
            shard=number,
            wanted=3,
            leader_store="s0",
            replicas=(*members, *readers),
            learners={"z9": 2},
        )

    forge(browser, "shards/page", page_of(shard(1, 2, 2), shard(2, 3, 1), shard(3, 3, 2)))
    state = "document.querySelector('#shards tr[data-shard=\"{}\"] .pill').textContent"
    browser.wait(state.format(1) + " === '2 of 3 replicas'")
    assert browser.run(state.format(2)) == "1 of 2 learners"
    assert browser.run(state.format(3)) == "ok"
    assert "r1 (learner, z9)" in text(browser, "#shards")


def test_the_limits_of_a_log_are_shown(browser: Chromium, cluster: LocalCluster) -> None:
    browser.show(page(cluster), 1600, 1000)
    limited = ShardRow(
        shard=1,
        max_bytes_per_s=2 << 20,
        max_records_per_s=5000,
        weight=400,
        appends_delayed=17,
    )
    forge(browser, "shards/page", page_of(limited, ShardRow(shard=2, weight=100)))
    cell = "document.querySelector('#shards tr[data-shard=\"{}\"] [data-label=limits]')"
    browser.wait(cell.format(1) + "?.textContent === '2.0 MiB/s, 5,000 records/s, weight 400'")
    assert len(browser.run(cell.format(2) + ".textContent")) == 1
    assert "17 appends waited" in browser.run(cell.format(1) + ".firstChild.title")


def test_what_is_clicked_is_reached_by_keyboard(browser: Chromium, cluster: LocalCluster) -> None:
    browser.show(page(cluster), 400, 800)
    met = set()
    for _ in range(120):
        for kind in ("keyDown", "keyUp"):
            browser.call(
                "Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9
            )
        met.add(browser.run("document.activeElement.id"))
    assert {"filter", "troubled", "kind", "follow", "feed", "operators", "events"} <= met


def test_each_store_says_how_old_its_directory_is(browser: Chromium, cluster: LocalCluster) -> None:
    browser.show(page(cluster), 1600, 1000)
    browser.wait(
        "[...document.querySelectorAll('.card')].every((card) =>"
        " /list of logs\\d+ s old/.test(card.textContent))"
    )
