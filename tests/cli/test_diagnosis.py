"""What the doctor says about reports with one thing wrong each, and what `top` draws."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from rich.console import Console

from logservice import bounds
from logservice.cli.ctl.top_view import SORTS, Rates, screen
from logservice.hakeeper.repair import standstill
from logservice.hakeeper.repair.bootstrap import initial_membership
from logservice.hakeeper.state import Behind, ShardState
from logservice.ids import Incarnation, Index, ReplicaId, ShardId, StoreId
from logservice.membership import Member
from logservice.memory_budget import FULL_ALARM, PARTS, Part
from logservice.server.monitor.cluster.diagnosis import (
    CLOCK_SKEW_US,
    FIRST_START_S,
    LAG_ENTRIES,
    Finding,
    Severity,
    diagnose,
)
from logservice.server.monitor.cluster.rows import (
    ClusterReport,
    ClusterRow,
    OperatorRow,
    ReplicaRow,
    ShardRow,
    StoreEvent,
    StoreRow,
)
from logservice.server.monitor.cluster.seen import Probe, Seen
from logservice.server.monitor.own.status import Buckets, Reason

changed = msgspec.structs.replace


def store(name: str, **changes: Any) -> StoreRow:
    values: dict[str, Any] = {
        "alive": True,
        "answers": True,
        "phase": "serving",
        "ready": True,
        "version": "1.0",
        "client_address": f"{name}:1",
        "replicas": 2,
        "bytes_written": 1000,
        "durable_writes": 10,
    }
    return StoreRow(store=name, **(values | changes))


def shard(number: int, **changes: Any) -> ShardRow:
    members = tuple(
        ReplicaRow(
            replica=place,
            store=f"s{place}",
            role="voter",
            health="alive",
            leader=place == 1,
            lag_entries=0,
        )
        for place in (1, 2, 3)
    )
    values: dict[str, Any] = {
        "name": f"log-{number}",
        "wanted": 3,
        "leader_store": "s1",
        "replicas": members,
    }
    return ShardRow(shard=number, **(values | changes))


def report(**changes: Any) -> ClusterReport:
    row = ClusterRow(
        cluster="c",
        phase="running",
        term=2,
        tick=9,
        asked_store="s1",
        time_us=1_000_000,
        hakeeper_age_s=0.0,
        hakeeper_error="",
        stores=4,
        stores_alive=4,
        stores_ready=4,
        shards=2,
        shards_without_leader=0,
        shards_lacking_replicas=0,
        operators=0,
        flags=(),
        events=(StoreEvent(store="s1", number=1, time_us=1, level="info", event="e", message="m"),),
    )
    values: dict[str, Any] = {
        "cluster": row,
        "stores": tuple(store(f"s{number}") for number in (1, 2, 3, 4)),
        "shards": (shard(0), shard(1)),
        "operators": (),
    }
    return ClusterReport(**(values | changes))


def with_store(number: int, **changes: Any) -> ClusterReport:
    stores = list(report().stores)
    stores[number - 1] = changed(stores[number - 1], **changes)
    return report(stores=tuple(stores))


def with_row(**changes: Any) -> ClusterReport:
    return report(cluster=changed(report().cluster, **changes))


def with_shard(one: ShardRow) -> ClusterReport:
    return report(shards=(shard(0), one))


def without(one: ShardRow, *lost: str, health: str = "silent", **changes: Any) -> ShardRow:
    members = tuple(
        changed(item, health=health) if item.store in lost else item for item in one.replicas
    )
    return changed(one, replicas=members, **changes)


def findings(seen: ClusterReport, *probes: Probe) -> list[Finding]:
    return diagnose(Seen(probes or (Probe("s1:1", "s1", ""),), seen, ""))


def test_nothing_is_wrong() -> None:
    assert findings(report()) == []


def test_nobody_answers() -> None:
    late = Seen((Probe("h:1", "s1", ""), Probe("h:2", "", "late")), None, "DEADLINE: h:1")
    (found,) = diagnose(late)
    assert (found.severity, found.code) == (Severity.BROKEN, "no_report")
    assert found.what == "s1 answered, but gave no report on the cluster: DEADLINE: h:1"
    assert "--timeout 30s doctor" in found.do
    (found,) = diagnose(Seen((Probe("h:1", "", "refused"),), None, "refused"))
    assert (found.severity, found.code) == (Severity.BROKEN, "nobody_answers")
    assert "h:1" in found.what


def test_whoever_may_not_look_is_not_told_that_nobody_answers() -> None:
    denied = "PERMISSION_DENIED: spiffe://x has no role admin or read over the cluster"
    (found,) = diagnose(Seen((Probe("h:1", "s1", ""),), None, denied))
    assert (found.severity, found.code) == (Severity.BROKEN, "not_let_look")
    assert "it may be well" in found.means
    assert found.page == "certificates.md"


BEHIND = tuple(
    changed(item, lag_entries=LAG_ENTRIES + 1 if item.store == "s2" else 0)
    for item in shard(1).replicas
)
OPERATOR = OperatorRow(
    operator=1,
    shard=1,
    kind="replace",
    step="catch up",
    age_ticks=5,
    replica=9,
    store="s4",
    error="",
)
OLD = changed(OPERATOR, age_ticks=bounds.HAKEEPER_SLOW_OPERATOR_TICKS + 1)


NEW = ("s1", "s2", "s3")


def reason(code: str) -> tuple[Reason, ...]:
    return (Reason(code=code, detail="why", shard=1), Reason(code=code, detail="why", shard=2))


@pytest.mark.parametrize(
    ("seen", "code", "severity"),
    [
        (with_row(hakeeper_error="deadline", hakeeper_age_s=9.0), "hakeeper_silent", 0),
        (
            changed(with_row(phase="bootstrapping"), stores=(store("s1", uptime_s=FIRST_START_S),)),
            "not_running",
            1,
        ),
        (with_row(phase="bootstrapping", flags=("bootstrap: shard 1",)), "not_running", 3),
        (with_row(flags=("look",)), "flags", 2),
        (with_shard(without(shard(1), "s2", "s3", leader_store="")), "lost_quorum", 0),
        (with_shard(shard(1, leader_store="")), "no_leader", 0),
        (with_shard(shard(1, leader_store="", state="creating")), "being_created", 3),
        (
            with_shard(
                without(shard(1, state="creating"), *NEW, health="missing", leader_store="")
            ),
            "being_created",
            3,
        ),
        (with_store(2, answers=False, error="refused"), "store_down", 1),
        (with_store(4, answers=False, error="refused"), "store_down", 2),
        (with_store(2, ready=False, reasons=reason("disk_full")), "disk_full", 1),
        (with_store(2, ready=False, reasons=reason("directory_failed")), "directory_failed", 1),
        (with_store(2, ready=False, reasons=reason("halted")), "halted", 1),
        (with_store(2, ready=False, reasons=reason("truncation_stalled")), "truncation_stalled", 2),
        (with_store(2, alarms=("peer plane: expires",)), "alarm", 2),
        (with_store(2, alarms=("peer port crowded: many",)), "peer_port_crowded", 2),
        (with_store(2, alarms=("clock wrong: +12.0 s off",)), "clock_wrong", 2),
        (with_store(2, alarms=("truncation overdue: no visit",)), "truncation_overdue", 2),
        (with_store(2, alarms=("memory part full: proposals: 9 of 9 MiB now",)), "memory_full", 2),
        (with_store(2, alarms=("memory part full: of a newer store: 9",)), "memory_full", 2),
        (with_store(2, durable_write_p99_us=bounds.SLOW_DURABLE_WRITE_US + 1), "slow_disk", 2),
        (with_store(2, version="1.1"), "versions", 3),
        (report(cluster=changed(report().cluster, next_version=2)), "cluster_version", 3),
        (with_store(2, clock_offset_us=-CLOCK_SKEW_US - 1), "clock", 2),
        (report(operators=(OLD,)), "slow_repair", 2),
        (report(operators=(changed(OPERATOR, error="no room"),)), "slow_repair", 2),
        (
            with_shard(
                shard(1, holds=1, hold_name="b", requested_truncation_lsn=9, truncated_lsn=4)
            ),
            "hold",
            2,
        ),
        (with_shard(shard(1, replicas=BEHIND)), "lag", 2),
        (with_shard(shard(1, replicas=shard(1).replicas[:2])), "short_of_replicas", 1),
        (with_shard(without(shard(1), "s2", health="lost")), "short_of_replicas", 1),
    ],
)
def test_one_thing_wrong_is_one_finding(seen: ClusterReport, code: str, severity: int) -> None:
    (found,) = findings(seen)
    assert (found.code, found.severity) == (code, severity)
    assert found.what
    assert found.means
    assert found.do


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_a_full_part_of_the_memory_is_told_with_who_pays_and_with_its_key(part: Part) -> None:
    (found,) = findings(with_store(2, alarms=(f"{FULL_ALARM}: {part.name}: 9 of 9 MiB now",)))
    assert found.code == "memory_full"
    assert found.what.startswith("s2: ")
    assert part.when_full in found.means
    assert (f"limits.{part.key}," in found.do) is bool(part.key)
    assert ("no key changes this limit" in found.do) is (not part.key)
    assert found.page == "memory-full.md"


@pytest.mark.parametrize(
    "seen",
    [
        with_store(2, durable_write_p99_us=bounds.SLOW_DURABLE_WRITE_US),
        with_store(2, clock_offset_us=CLOCK_SKEW_US),
        report(operators=(OPERATOR,)),
        with_shard(shard(1, holds=1, requested_truncation_lsn=4, truncated_lsn=4)),
        with_store(2, ready=False, reasons=reason("starting")),
    ],
)
def test_what_is_normal_is_not_found(seen: ClusterReport) -> None:
    assert findings(seen) == []


def test_a_dead_store_is_one_finding_however_many_shards_it_held() -> None:
    dead = with_store(2, answers=False, alive=False, ready=False, error="refused")
    many = changed(dead, shards=tuple(without(shard(number), "s2") for number in range(200)))
    (found,) = findings(many)
    assert "200 shards have a replica there; 200 of them stop" in found.means
    assert "on the other stores" in found.do


def test_shards_that_stopped_are_not_counted_as_those_that_would() -> None:
    seen = with_store(2, answers=False, ready=False, error="refused")
    stopped = tuple(without(shard(number), "s2", "s3", leader_store="") for number in (1, 2))
    found = {
        one.code: one for one in findings(changed(seen, shards=(*stopped, without(shard(3), "s2"))))
    }
    none = findings(changed(seen, shards=stopped))
    assert none[-1].means.endswith("; 2 of them take no appends now.")
    assert found["store_down"].means == (
        "3 shards have a replica there; 2 of them take no appends now;"
        " 1 of them stop when one more store fails."
    )


EMPTY = (Reason(code="shard_0_refused", detail="another data directory"),)


def test_stores_that_came_back_empty_come_first_and_are_not_asked_to_return() -> None:
    seen = report(
        cluster=changed(
            report().cluster, hakeeper_error="deadline", hakeeper_age_s=95.0, hakeeper_silent_s=90.0
        ),
        stores=(
            store("s1", ready=False),
            store("s2", ready=False, reasons=EMPTY),
            store("s3", ready=False, reasons=EMPTY),
        ),
        shards=tuple(
            without(shard(number), "s2", "s3", health="missing", leader_store="", voters=3)
            for number in (0, 1)
        ),
    )
    found = findings(seen)
    assert [one.code for one in found] == ["shard_0_refused", "hakeeper_silent", "majority_gone"]
    assert "it last answered s1 90 s ago" in found[1].what
    assert "is 95 s old" in found[1].means
    assert "No restart" in found[1].do
    assert "2 shards (0, 1)" in found[2].what


def test_nothing_is_lost_while_the_first_start_is_under_way() -> None:
    """No replica of a log runs yet, and the version is not raised yet."""
    log = without(shard(1, state="creating"), *NEW, health="missing", leader_store="")
    first = changed(
        with_shard(log),
        cluster=changed(report().cluster, phase="bootstrapping", cluster_version=1, next_version=2),
    )
    assert [one.code for one in findings(first)] == ["not_running"]
    old = changed(first, stores=(store("s1", uptime_s=FIRST_START_S),))
    assert [one.code for one in findings(old)] == ["not_running", "being_created"]


def test_members_that_nobody_can_name_may_be_on_the_stores_that_are_down() -> None:
    one = changed(shard(1, leader_store="", voters=3), replicas=shard(1).replicas[:1])
    down = with_store(2, answers=False, alive=False, error="refused")
    down = changed(down, stores=down.stores[:2], shards=(one,))
    assert "lost_quorum" in [found.code for found in findings(down)]
    up = report(stores=report().stores[:2], shards=(one,))
    assert "majority_gone" in [found.code for found in findings(up)]


def test_a_store_that_only_the_others_cannot_reach_speaks_for_itself() -> None:
    best = with_store(2, answers=False, error="refused")
    best = changed(best, cluster=changed(best.cluster, hakeeper_error="deadline"))
    own = with_store(2, reasons=EMPTY, ready=False)
    own = changed(own, cluster=changed(own.cluster, asked_store="s2", hakeeper_error="deadline"))
    probes = (Probe("s1:1", "s1", ""), Probe("s2:1", "s2", ""))
    found = {one.code: one for one in diagnose(Seen(probes, best, "", (own,)))}
    assert "s2" in found["shard_0_refused"].what
    assert "answers from here" in found["store_down"].do


def test_who_remembers_nothing_does_not_say_that_there_is_nothing() -> None:
    seen = with_store(2, answers=False, alive=False, error="refused", client_address="")
    row = changed(seen.cluster, phase="unknown", hakeeper_error="deadline", hakeeper_age_s=-1.0)
    found = findings(changed(seen, cluster=row, shards=()), Probe("s2:1", "", "refused"))
    by_code = {one.code: one for one in found}
    assert by_code["store_down"].severity is Severity.DANGER
    assert "Nobody who answers knows" in by_code["store_down"].means
    assert "perhaps s2" in by_code["unknown_endpoint"].do


def test_flags_lead_to_their_page_and_are_not_told_twice() -> None:
    flags = ("disk full: s2 /d", "disk full: s9 /d", "shard 1: no spare store for another replica")
    seen = with_store(2, ready=False, reasons=reason("disk_full"))
    found = findings(changed(seen, cluster=changed(seen.cluster, flags=flags)))
    assert [(one.code, one.page) for one in found] == [
        ("disk_full", "disk-full.md"),
        ("flags", "disk-full.md"),
        ("flags", "lost-store.md"),
    ]
    assert "s2 /d" not in found[1].what
    silent = changed(seen.cluster, flags=flags, hakeeper_error="deadline")
    (*_, last) = findings(changed(seen, cluster=silent))
    assert last.what.startswith("Before it fell silent HAKeeper asked")


def test_a_replica_that_stands_still_has_a_finding_of_its_own_and_is_said_once() -> None:
    members = initial_membership([Member(ReplicaId(2), StoreId("s2"), Incarnation(7))]).encode()
    known = ShardState(ShardId(1), "log-1", 3, 1, members, members)
    text = standstill.flag(known, ReplicaId(2), Behind(Index(40), 100))
    rows = [*shard(1).replicas]
    rows[1] = changed(rows[1], lag_entries=LAG_ENTRIES + 1)
    seen = with_shard(changed(shard(1), replicas=tuple(rows)))
    assert [one.code for one in findings(seen)] == ["lag"]
    seen = changed(seen, cluster=changed(seen.cluster, tick=850, flags=(text,)))
    (found,) = findings(seen)
    assert (found.code, found.page) == ("standstill", "standstill.md")
    assert found.severity is Severity.DANGER
    assert "shard 1: replica 2 on s2, for 75 s" in found.what


def test_without_a_spare_store_it_says_so() -> None:
    dead = with_store(2, answers=False, ready=False, error="refused")
    three = changed(dead, stores=dead.stores[:3], shards=(without(shard(1), "s2"),))
    (found,) = findings(three)
    assert "1 shards have no spare store" in found.do


def test_the_worst_comes_first_and_names_who_is_missing() -> None:
    seen = with_store(2, answers=False, ready=False, error="refused", clock_offset_us=9_000_000)
    seen = changed(seen, shards=(without(shard(1), "s2", "s3", leader_store=""),))
    found = findings(seen)
    assert [one.code for one in found] == ["lost_quorum", "store_down"]
    assert "Missing: s2, s3." in found[0].what


def test_doors_that_are_closed_from_here_only() -> None:
    found = findings(
        report(), Probe("s1:1", "s1", ""), Probe("s2:1", "", "timeout"), Probe("x:1", "", "refused")
    )
    assert [one.code for one in found] == ["unreachable_from_here", "unknown_endpoint"]


# --- top ------------------------------------------------------------------------------------------


def drawn(seen: ClusterReport, before: ClusterReport | None, sort: str, width: int) -> str:
    console = Console(width=width, height=24, force_terminal=False, record=True)
    with console.capture() as captured:
        console.print(screen(seen, before, sort, 24, width))
    return captured.get()


def test_what_a_replica_lacks_is_said_in_bytes_and_seconds() -> None:
    far = bounds.CATCH_UP_BEHIND_BYTES + 1
    for lag_bytes, to_go_s, entries, told, state in (
        (far, 42.0, LAG_ENTRIES + 1, "10001 entries, 8.0 MiB, 42 s to go", True),
        (far, -1.0, LAG_ENTRIES + 1, "10001 entries, 8.0 MiB", False),
        (far - 1, 42.0, LAG_ENTRIES + 1, "10001 entries, 8.0 MiB, 42 s to go", False),
        (-1, -1.0, LAG_ENTRIES + 1, "10001 entries", False),
        (far, 42.0, 9, "", True),
    ):
        rows = [*shard(1).replicas]
        rows[1] = changed(rows[1], lag_entries=entries, lag_bytes=lag_bytes, to_go_s=to_go_s)
        seen = with_shard(changed(shard(1), replicas=tuple(rows)))
        texts = [one.what for one in findings(seen)]
        assert texts == ([f"Replicas are far behind: shard 1 on s2: {told}"] if told else [])
        assert ("catching up, 42 s" in drawn(seen, None, "state", 160)) is state


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("width", [80, 160])
def test_a_screen_holds_a_big_cluster(sort: str, width: int) -> None:
    big = report(shards=tuple(shard(number) for number in range(500)))
    text = drawn(big, None, sort, width)
    lines = text.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= width
    assert "more" in text


@pytest.mark.parametrize("width", [80, 120])
def test_names_and_sizes_are_shown_whole(width: int) -> None:
    many = tuple(
        Reason(code=code, shard=1) for code in ("no_leader", "truncation_stalled", "halted")
    )
    stores = tuple(
        store(
            f"store-{number}",
            ready=False,
            reasons=many,
            disk_used_bytes=999 << 30,
            disk_free_bytes=999 << 30,
            durable_write_p50_us=123_456,
            durable_write_p99_us=987_654,
            append_seconds=Buckets(bounds=(1.0, 5.0), counts=(0, 9, 9), total=0.0),
            read_seconds=Buckets(bounds=(1.0, 5.0), counts=(0, 9, 9), total=0.0),
        )
        for number in (1, 2, 3)
    )
    here = tuple(ReplicaRow(replica=n, store=f"store-{n}", role="voter") for n in (1, 2, 3))
    rows = tuple(shard(number, leader_store="store-1", replicas=here) for number in (0, 1000))
    text = drawn(report(stores=stores, shards=rows), None, "state", width)
    for name in ("store-1 ", "store-2 ", "store-3 ", "999 GiB", "123/988 ms", "1000 "):
        assert name in text
    assert "sto…" not in text
    assert ("written/s" in text) is (width >= 120)


def test_a_log_that_its_limits_held_up_since_the_last_screen_says_so() -> None:
    before = report(shards=(shard(1, appends_delayed=4),))
    again = changed(before, shards=(shard(1, appends_delayed=5),))
    assert "at its limit" in drawn(again, before, "state", 120)
    assert "at its limit" not in drawn(again, again, "state", 120)
    assert "at its limit" not in drawn(again, None, "state", 120)


def test_trouble_comes_first() -> None:
    seen = report(shards=(shard(0), shard(1), shard(7, leader_store="")))
    lines = drawn(seen, None, "state", 160).splitlines()
    first = next(line for line in lines if "log-" in line)
    assert "no leader" in first


def test_rates_are_differences() -> None:
    before = report()
    after = report(
        cluster=changed(before.cluster, time_us=3_000_000),
        shards=(changed(shard(1), applied_lsn=500),),
        stores=(store("s1", bytes_written=3000, durable_writes=30),),
    )
    rates = Rates(after, before)
    assert rates.records(after.shards[0]) == 250
    assert (rates.written(after.stores[0]), rates.durable_writes(after.stores[0])) == (1000, 10)
    other = changed(before, cluster=changed(before.cluster, asked_store="s2"))
    assert Rates(after, other).records(after.shards[0]) == 0
    restarted = report(stores=(store("s1", bytes_written=5000),))
    assert Rates(after, restarted).written(after.stores[0]) == 0


def took(*counts: int) -> Buckets:
    return Buckets(bounds=(0.001, 0.002), counts=counts, total=1.0)


def test_latencies_are_those_since_the_last_screen() -> None:
    before = report(stores=(store("s1", append_seconds=took(100, 0, 7)),))
    seen = store("s1", append_seconds=took(100, 10, 7), read_seconds=took(4, 0, 0))
    after = report(cluster=changed(before.cluster, time_us=3_000_000), stores=(seen,))
    assert Rates(after, before).append(seen) == "1.5/2.0 ms", "without the slow ones before"
    assert Rates(after, before).read(seen) == "0.5/1.0 ms", "an empty one before"
    assert Rates(after, None).append(seen) == "0.6/2.0 ms", "all since it started"
    assert Rates(after, after).append(seen) == "-", "nothing was appended"
    assert Rates(after, before).append(store("s1")) == "-", "it does not answer"
    restarted = store("s1", append_seconds=took(2, 0, 0))
    assert Rates(report(stores=(restarted,)), before).append(restarted) == "0.5/1.0 ms"
    text = drawn(after, before, "state", 120)
    assert "1.5/2.0 ms" in text
    assert "0.5/1.0 ms" in text


@pytest.mark.parametrize(
    ("wanted", "told"), [("", False), ("a", False), ("eu", False), ("eu/a", False), ("z9", True)]
)
def test_a_leaders_zone_that_no_store_is_in_is_a_notice(wanted: str, *, told: bool) -> None:
    seen = with_store(1, zone="eu/a")
    shards = (seen.shards[0], changed(seen.shards[1], leader_zone=wanted))
    found = findings(changed(seen, shards=shards))
    assert [one.code for one in found] == ["leader_zone"] * told
    if told:
        assert "Shard 1 should be led in zone z9, and no store is there" in found[0].what
        assert "the zones are: eu/a" in found[0].what


def test_a_configuration_that_names_other_settings_is_a_notice() -> None:
    said = {"hakeeper.joining": "automatic", "hakeeper.store_timeout_s": "300"}
    settings = {"hakeeper.joining": "automatic", "hakeeper.store_timeout_s": "60"}
    seen = with_store(1, configured=said)
    in_force = changed(seen.cluster, settings=settings)
    (found,) = findings(changed(seen, cluster=in_force))
    assert (found.severity, found.code) == (Severity.NOTICE, "settings")
    assert found.what == "hakeeper.store_timeout_s is 60 in the cluster, and s1 says 300."
    assert findings(seen) == []


@pytest.mark.parametrize(
    ("flag", "page"),
    [
        ("shard 1: no store to move replica 4 to from s1, which is drained", "drain.md"),
        ("repair is off for s1, 12 min left: a new board", "drain.md"),
        (
            "store s1 was turned away: a data directory of s1, which was forgotten",
            "forget-a-store.md",
        ),
        ("shard 1: the wish 3 to move a replica is slow: catching up", "move.md"),
        ("bootstrap failed: look at the stores", "bootstrap-failed.md"),
    ],
)
def test_the_flags_of_verbs_have_pages(flag: str, page: str) -> None:
    (found,) = findings(with_row(flags=(flag,)))
    assert (found.code, found.page) == ("flags", page)
