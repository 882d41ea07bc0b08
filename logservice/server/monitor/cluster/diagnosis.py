"""diagnosis: what is wrong with a cluster, in plain words, and what to do; a pure function.

Every finding says what is wrong, what it means for users, and what to do next, and names the page
of docs/operations/ that has the commands. Findings are ordered by how bad they are:

    broken    something cannot be appended to or read now
    danger    one more failure breaks something, or data is at risk
    warning   it will become worse if nobody acts
    notice    worth knowing; nothing has to be done

A consequence of another finding is said in that finding and is no finding of its own. A dead store,
for example, makes hundreds of shards short of a replica, and that is one finding.

`logctl doctor` and the page of the admin port say the same, from what each has seen.
"""

from __future__ import annotations

import enum
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from msgspec import Struct

from logservice import bounds
from logservice.hakeeper.stores.zones import is_in
from logservice.memory_budget import FULL_ALARM, PARTS
from logservice.nodehost.clocks.clock_watch import CLOCK_ALARM
from logservice.nodehost.transport.link.stats import CROWDED_ALARM
from logservice.nodehost.truncation.worker import VISIT_ALARM
from logservice.same_names import copied
from logservice.server.monitor.cluster.rows import (
    ClusterReport,
    ReplicaRow,
    ShardRow,
    StoreRow,
)
from logservice.server.monitor.cluster.seen import Seen

CLOCK_SKEW_US = 500_000
"""With more skew the times in the logs of two stores mislead, and two stores may disagree whether
a certificate is valid."""

_MIB = 1024 * 1024

LAG_ENTRIES = 10_000
"""A follower that is further behind would take long to catch up if it had to lead."""

FIRST_START_S = 60.0
"""A first start takes seconds. Stores that have run for longer without one wait for something."""

_SHOWN = 10


class Severity(enum.IntEnum):
    """How bad a finding is; the header of this file has the table."""

    BROKEN = 0
    DANGER = 1
    WARNING = 2
    NOTICE = 3


class Chance(enum.Enum):
    """What a shard without a leader can hope for."""

    ELECTION = "election"
    """Its majority runs, so it can elect a leader."""
    IF_STORES_RETURN = "if_stores_return"
    GONE = "gone"
    """Stores that run have lost their replicas, so too few would be left even if every store ran.
    """


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. `code` is stable, for scripts. `page` is relative to docs/operations/ and may be
    empty.
    """

    severity: Severity
    code: str
    what: str
    means: str
    do: str
    page: str = ""


class FindingRow(Struct, frozen=True, kw_only=True):
    """A finding as documents have it. `page`: from the repository's root, or empty."""

    severity: str
    code: str
    what: str
    means: str
    do: str
    page: str


def row(finding: Finding) -> FindingRow:
    """The document of a finding."""
    return copied(
        FindingRow,
        finding,
        severity=finding.severity.name.lower(),
        page=f"docs/operations/{finding.page}" if finding.page else "",
    )


def diagnose(seen: Seen) -> list[Finding]:
    """All findings, the worst first; none when all is well."""
    if seen.report is None:
        return [_nobody_answers(seen)]
    report = seen.report
    found = [
        *_refused(seen),
        *_hakeeper(report),
        *_leaderless(report),
        *_stores(seen, report),
        *_short(report),
        *_unreachable_from_here(seen, report),
        *_reasons(seen),
        *_repairs(report),
        *_holds(report),
        *_standstill(report),
        *_lag(report),
        *_differences(report),
        *_homeless(report),
    ]
    return sorted(found, key=lambda finding: finding.severity)


def _nobody_answers(seen: Seen) -> Finding:
    tried = ", ".join(one.address for one in seen.probes)
    if seen.error.startswith("PERMISSION_DENIED"):
        return Finding(
            Severity.BROKEN,
            "not_let_look",
            f"The stores answer, and do not let you look: {seen.error}",
            "How the cluster is cannot be told from here; it may be well.",
            "Ask an administrator: `logctl acl grant IDENTITY cluster read`, or use another"
            " certificate.",
            "certificates.md",
        )
    if answering := ", ".join(one.store for one in seen.probes if not one.error):
        return Finding(
            Severity.BROKEN,
            "no_report",
            f"{answering} answered, but gave no report on the cluster: {seen.error}",
            "How the cluster is cannot be told from here. A store waits for those that stand"
            " still, some seconds.",
            "Give it more time: `logctl --timeout 30s doctor`.",
            "lost-quorum.md",
        )
    return Finding(
        Severity.BROKEN,
        "nobody_answers",
        f"No store answers at {tried}: {seen.error}",
        "From here nothing can be appended or read.",
        "Check that the addresses are the stores' client addresses, that the stores run"
        " (their logs say why not), and, with TLS, that --tls-ca, --tls-cert and --tls-key fit.",
        "lost-quorum.md",
    )


def _hakeeper(report: ClusterReport) -> Iterator[Finding]:
    row = report.cluster
    shard = next((shard for shard in report.shards if shard.shard == 0), None)
    if row.hakeeper_error:
        when = (
            f"it has not answered {row.asked_store} since that started"
            if row.hakeeper_silent_s < 0
            else f"it last answered {row.asked_store} {row.hakeeper_silent_s:.0f} s ago"
        )
        yield Finding(
            Severity.BROKEN,
            "hakeeper_silent",
            f"HAKeeper (shard 0) does not answer; {when}. {_who_is_missing(report, shard)}",
            "Logs that have their majority go on. Nothing is repaired and no shard can be created."
            f" {_how_old(report)}",
            _bring_back_hakeeper(report, shard),
            "lost-quorum.md",
        )
    elif row.phase != "running":
        yield Finding(
            Severity.NOTICE if _young(report) else Severity.DANGER,
            "not_running",
            f"The cluster is not running yet: {row.phase.replace('_', ' ')}.",
            "Shards are placed and repaired only in a running cluster.",
            "Nothing: a first start takes seconds. Run doctor again."
            if _young(report)
            else "Start every store of bootstrap.hakeeper_members; their logs say what the first"
            " start waits for.",
        )


def _how_old(report: ClusterReport) -> str:
    row = report.cluster
    if row.phase == "unknown":
        return "What is said here is what the stores say themselves; nobody remembers HAKeeper's."
    if row.hakeeper_age_s < 0:
        return "What is said of stores that do not answer is old; nobody knows how old."
    return f"What is said of stores that do not answer is {row.hakeeper_age_s:.0f} s old."


def _bring_back_hakeeper(report: ClusterReport, shard: ShardRow | None) -> str:
    chance = _chance(report, shard) if shard is not None else Chance.IF_STORES_RETURN
    if chance is Chance.GONE:
        return "No restart brings it back: see what is said of the replicas of shard 0."
    if chance is Chance.IF_STORES_RETURN:
        return "Bring the missing stores of shard 0 back; a majority of them is enough."
    return (
        "Its majority runs. If doctor says the same again, the stores do not reach each other's"
        " peer port, or a disk is so slow that elections fail."
    )


def _young(report: ClusterReport) -> bool:
    """Whether the first start may still be under way, when missing parts are no failure."""
    return report.cluster.phase != "running" and all(
        store.answers and store.uptime_s < FIRST_START_S for store in report.stores
    )


def _refused(seen: Seen) -> Iterator[Finding]:
    refused = [
        (store.store, reason.detail)
        for store in seen.rows()
        for reason in store.reasons
        if reason.code == "shard_0_refused"
    ]
    if refused:
        names = ", ".join(store for store, _ in refused)
        yield Finding(
            Severity.BROKEN,
            "shard_0_refused",
            f"HAKeeper does not start on {names}: {_listed([why for _, why in refused[:1]], '')}",
            "The data directory is not the one that HAKeeper was begun with: it is empty, or"
            " another's. What was in the right one does not count until it is back. HAKeeper has"
            " not answered since, or it would have replaced what is lost.",
            "Look for the old data directory (a disk that is not mounted, a changed"
            " store.data_directories). If it is found, stop the store, put it back, start the store"
            " again. Do not empty any other directory.",
            "lost-quorum.md",
        )


def _leaderless(report: ClusterReport) -> Iterator[Finding]:
    lost: dict[Chance, list[ShardRow]] = {chance: [] for chance in Chance}
    created: list[ShardRow] = []
    for shard in report.shards:
        if shard.leader_store:
            continue
        chance = _chance(report, shard)
        if shard.state == "creating" and chance is not Chance.IF_STORES_RETURN:
            created.append(shard)
        elif shard.shard or not report.cluster.hakeeper_error or chance is Chance.GONE:
            lost[chance].append(shard)
    if gone := lost[Chance.GONE]:
        yield Finding(
            Severity.BROKEN,
            "majority_gone",
            f"{_shards(gone)} lost the majority of its replicas, and not because stores are down."
            f" {_who_is_missing(report, *gone)}",
            "It takes no appends and no linearizable reads, and waiting does not change that. Its"
            " records are where a replica is left and in the directories that are missing.",
            "Put the missing data directories back. Keep every directory as it is. If those of a"
            " majority are destroyed, the page says what can be saved.",
            "restore.md",
        )
    if down := lost[Chance.IF_STORES_RETURN]:
        yield Finding(
            Severity.BROKEN,
            "lost_quorum",
            f"{_shards(down)} lost the majority of its replicas. {_who_is_missing(report, *down)}",
            "It takes no appends and no linearizable reads. What was acknowledged is safe on the"
            " disks of those stores.",
            "Start those stores again with their data directories. Do not delete any of them.",
            "lost-quorum.md",
        )
    if created and not _young(report):
        yield Finding(
            Severity.NOTICE,
            "being_created",
            f"{_shards(created)} is being created and has had no leader yet.",
            "It takes no appends yet, and nothing was ever in it.",
            "Nothing: it takes seconds. If doctor says the same again, `logctl repairs` says what"
            " it waits for.",
            "lost-quorum.md",
        )
    if (waiting := lost[Chance.ELECTION]) and not _young(report):
        yield Finding(
            Severity.BROKEN,
            "no_leader",
            f"{_shards(waiting)} has a majority of live replicas and no leader.",
            "It takes no appends until one is elected, which takes about a second.",
            "Run doctor again. If it stays so, the stores do not reach each other's peer port, or a"
            " disk is so slow that elections fail: look at the durable writes in `logctl top`.",
            "lost-quorum.md",
        )


def _stores(seen: Seen, report: ClusterReport) -> Iterator[Finding]:
    from_here = {one.store for one in seen.probes if not one.error}
    for store in report.stores:
        if store.answers:
            continue
        short = [
            shard
            for shard in report.shards
            if any(replica.store == store.store for replica in shard.replicas)
        ]
        yield Finding(
            Severity.DANGER if short or report.cluster.phase == "unknown" else Severity.WARNING,
            "store_down",
            f"Store {store.store} does not answer the others ({store.error}); HAKeeper"
            f" {_stance(report, store)}.",
            _what_stops(report, short),
            _bring_back(report, short, answers_here=store.store in from_here),
            "lost-store.md",
        )


def _stance(report: ClusterReport, store: StoreRow) -> str:
    if report.cluster.hakeeper_error:
        return "is silent itself and does nothing about it"
    return "still waits for it" if store.alive else "has given it up"


def _what_stops(report: ClusterReport, short: Sequence[ShardRow]) -> str:
    if not short and report.cluster.phase == "unknown":
        return "Nobody who answers knows what it has: perhaps all that is left."
    if not short:
        return "No shard has a replica there."
    stopped = sum(not shard.leader_store for shard in short)
    tight = sum(bool(shard.leader_store) and _one_failure_left(shard) for shard in short)
    words = [f"{len(short)} shards have a replica there"]
    if stopped:
        words.append(f"{stopped} of them take no appends now")
    if tight or not stopped:
        words.append(f"{tight} of them stop when one more store fails")
    return "; ".join(words) + "."


def _bring_back(report: ClusterReport, short: Sequence[ShardRow], *, answers_here: bool) -> str:
    if answers_here:
        return (
            "It answers from here, so it runs: look at its peer port, at the network between the"
            " stores, and at the peer certificates."
        )
    if report.cluster.hakeeper_error:
        return "Start it again, with its data directory."
    return (
        "Start it again. If its machine is lost, HAKeeper replaces its replicas after"
        f" hakeeper.store_timeout_s, {_spare(report, short)}."
    )


def _short(report: ClusterReport) -> Iterator[Finding]:
    """Shards short of a replica although their stores answer: a repair is due or under way."""
    silent = {store.store for store in report.stores if not store.answers}
    short = [
        shard
        for shard in report.shards
        if shard.leader_store
        and not _young(report)
        and not silent & {item.store for item in shard.replicas}
        and shard.live_voters < shard.wanted
    ]
    if short:
        yield Finding(
            Severity.DANGER,
            "short_of_replicas",
            f"{_shards(short)} has fewer live replicas than wanted.",
            "Until the repair is done one more failure may stop it.",
            "HAKeeper repairs it by itself if there is a store to go to: `logctl repairs`.",
            "lost-store.md",
        )


def _unreachable_from_here(seen: Seen, report: ClusterReport) -> Iterator[Finding]:
    rows = {row.client_address: row for row in report.stores}
    unplaced = [row.store for row in report.stores if not row.client_address]
    for one in seen.probes:
        row = rows.get(one.address)
        if one.error and row is not None and row.answers:
            yield Finding(
                Severity.WARNING,
                "unreachable_from_here",
                f"{row.store} answers the other stores, but not from here at {one.address}:"
                f" {one.error}",
                "Clients on this machine reach it only through other stores.",
                "Check routes and firewalls between here and there, and"
                " listen.advertise_client of that store.",
            )
        elif one.error and row is None:
            yield Finding(
                Severity.WARNING,
                "unknown_endpoint",
                f"Nothing answers at {one.address}, and no store of the cluster has that address:"
                f" {one.error}",
                "Clients that are given this address lose time with it.",
                "Start the store it belongs to"
                + (f", perhaps {', '.join(unplaced)}" if unplaced else "")
                + "; if there is none, take it out of the list of endpoints.",
            )


_REASONS: dict[str, tuple[Severity, str, str, str]] = {
    "disk_full": (
        Severity.DANGER,
        "Its disk is above the mark. Shards whose majority is full refuse appends with DISK_FULL;"
        " reads and truncation work.",
        "Truncate what is checkpointed, look for holds that keep it back, or make the disk larger."
        " Appends work again by themselves.",
        "disk-full.md",
    ),
    "directory_failed": (
        Severity.DANGER,
        "The data directory failed and is not used any more; HAKeeper replaces its replicas.",
        "Replace the disk, give the store an empty directory in its place, and restart it.",
        "replace-a-machine.md",
    ),
    "halted": (
        Severity.DANGER,
        "Its data cannot be trusted, so the replica neither votes nor acknowledges."
        " HAKeeper replaces it from the others.",
        "Watch `logctl repairs`. If several replicas of one shard are halted, stop here and read"
        " the page.",
        "restore.md",
    ),
    "diverged": (
        Severity.DANGER,
        "Replicas have different records under valid checksums, and too few of them answer to tell"
        " which is right. Without an answer the shard halts after a minute.",
        "Start the stores of the shard that are down, with their data directories.",
        "diverged-replicas.md",
    ),
    "stuck": (
        Severity.DANGER,
        "A replica has entries to apply and applies none. If it leads, it acknowledges nothing.",
        "Let another replica lead, look for reads of its disk that hang, and restart the store.",
        "not-applying.md",
    ),
    "truncation_stalled": (
        Severity.WARNING,
        "Space that the clients let go of is not freed; the disk will fill.",
        "The reason is in the finding; the page says what each one means."
        " `logctl shards --truncation --stuck` shows the replicas.",
        "stalled-truncation.md",
    ),
    "no_hakeeper": (
        Severity.WARNING,
        "It is empty: HAKeeper decides what runs there, and has not answered it since it started.",
        "At a first start, start every store of bootstrap.hakeeper_members. Else look whether the"
        " store reaches the others' peer ports.",
        "not-ready.md",
    ),
    "no_reply": (
        Severity.DANGER,
        "The event loop of the store is stuck, most likely behind its disk.",
        "Look at the disk; restart the store if it does not come back.",
        "slow-disk.md",
    ),
}


def _reasons(seen: Seen) -> Iterator[Finding]:
    young = seen.report is not None and _young(seen.report)
    for store in seen.rows():
        by_code: dict[str, list[str]] = {}
        for reason in store.reasons:
            where = f"shard {reason.shard}: " if reason.shard >= 0 else ""
            by_code.setdefault(reason.code, []).append(where + reason.detail)
        for code, details in by_code.items():
            if code not in _REASONS or (young and code == "no_hakeeper"):
                continue
            severity, means, do, page = _REASONS[code]
            what = f"{store.store}: {code.replace('_', ' ')}: {_listed(details, '; ')}"
            yield Finding(severity, code, what, means, do, page)
        for alarm in store.alarms:
            yield _alarm(store.store, alarm)
        if store.durable_write_p99_us > bounds.SLOW_DURABLE_WRITE_US:
            yield Finding(
                Severity.WARNING,
                "slow_disk",
                f"{store.store}: durable writes take"
                f" {store.durable_write_p99_us // 1000} ms (p99).",
                "Every append that needs this disk waits for it, and elections may follow.",
                "See what else uses the disk; hand the leaderships away:"
                " `logctl transfer SHARD OTHER-STORE`.",
                "slow-disk.md",
            )


def _alarm(store: str, alarm: str) -> Finding:
    if alarm.startswith(CROWDED_ALARM):
        return Finding(
            Severity.WARNING,
            "peer_port_crowded",
            f"{store}: {alarm}",
            "Somebody scans or attacks the port where stores talk. Known stores have places of"
            " their own there: appends go on.",
            "Let only the stores' addresses reach that port; the store's log names the newest of"
            " the others.",
            "peer-port.md",
        )
    if alarm.startswith(CLOCK_ALARM):
        return Finding(
            Severity.WARNING,
            "clock_wrong",
            f"{store}: {alarm}",
            "It gives its leaderships away and gets none until the clock is right. Appends go on,"
            " and append times stay near what the other stores' clocks say.",
            "Set the clock, and see why the time service of that machine did not.",
            "not-ready.md",
        )
    if alarm.startswith(VISIT_ALARM):
        return Finding(
            Severity.WARNING,
            "truncation_overdue",
            f"{store}: {alarm}",
            "The store frees nothing of what is truncated, exports nothing, and lets nothing go by"
            " its age, until a visit ends. Appends go on until the disk is full.",
            "See whether the disk answers and what the store's log says; then restart the store.",
            "stalled-truncation.md",
        )
    if alarm.startswith(FULL_ALARM):
        return _memory_full(store, alarm)
    return Finding(
        Severity.WARNING,
        "alarm",
        f"{store}: {alarm}",
        "With an expired certificate nobody can connect to the store, nor it to others.",
        "Issue new certificates into the same files; they are taken up without a restart.",
        "certificates.md",
    )


def _memory_full(store: str, alarm: str) -> Finding:
    name = alarm.removeprefix(f"{FULL_ALARM}: ").partition(":")[0]
    part = next((one for one in PARTS if one.name == name), None)
    means = f"While it is full, {part.when_full}. " if part is not None else ""
    change = (
        f"raise limits.{part.key}, and limits.memory_bytes_max where that is set, in the store's"
        " configuration, and restart the store"
        if part is not None and part.key
        else "no key changes this limit: spread the load over more stores"
    )
    return Finding(
        Severity.WARNING,
        "memory_full",
        f"{store}: {alarm}",
        f"{means}Nothing that was acknowledged is lost, and the store does not run out of memory.",
        "See who sends, or does not read, so much: the page says how for each part. If it is"
        f" what the store shall carry and its machine has the memory, {change}.",
        "memory-full.md",
    )


def _repairs(report: ClusterReport) -> Iterator[Finding]:
    for operator in report.operators:
        if operator.age_ticks > bounds.HAKEEPER_SLOW_OPERATOR_TICKS or operator.error:
            yield Finding(
                Severity.WARNING,
                "slow_repair",
                f"The repair of shard {operator.shard} ({operator.kind} replica {operator.replica})"
                f" is {operator.age_ticks // bounds.HAKEEPER_TICKS_PER_S} s old,"
                f" at: {operator.step}. {operator.error}",
                "Until it is done the shard is short of a replica.",
                "A new replica copies everything above the truncation LSN: look at the network"
                " and disk of the stores involved; truncating makes it shorter.",
                "lost-store.md",
            )
    yield from _flags(report)


_STANDSTILL = re.compile(
    r"shard (?P<shard>\d+): replica (?P<replica>\d+) on (?P<store>.+) does not catch up:"
    r" behind, at entry \d+ since tick (?P<tick>\d+)"
)
"""The flag in the form in which `hakeeper.repair.standstill` writes it."""


def _standing(report: ClusterReport) -> dict[tuple[int, int], re.Match[str]]:
    """HAKeeper's standstill flags, by shard and replica."""
    matches = (_STANDSTILL.fullmatch(flag) for flag in report.cluster.flags)
    return {(int(one["shard"]), int(one["replica"])): one for one in matches if one}


def _standstill(report: ClusterReport) -> Iterator[Finding]:
    standing = _standing(report)
    if not standing:
        return
    each = [
        f"shard {one['shard']}: replica {one['replica']} on {one['store']}, for"
        f" {max(0, report.cluster.tick - int(one['tick'])) // bounds.HAKEEPER_TICKS_PER_S} s"
        for one in standing.values()
    ]
    yield Finding(
        Severity.DANGER,
        "standstill",
        f"Replicas run, are behind and do not catch up: {_listed(each, '; ')}",
        "Each counts for no majority: one more failure may stop its shard. HAKeeper does not"
        " replace it: what holds it up would most likely hold up its successor, too.",
        "See whether that store's disk is full or slow, and whether it reaches the peer port of the"
        " store that leads; hand the leadership to another store; restart the store. The page says"
        " how to have the replica replaced.",
        "standstill.md",
    )


_FLAG_PAGES = {
    "disk full": "disk-full.md",
    "bootstrap failed": "bootstrap-failed.md",
    "bootstrap": "not-ready.md",
    "no live majority": "lost-quorum.md",
    "which is drained": "drain.md",
    "repair is off": "drain.md",
    "which was forgotten": "forget-a-store.md",
    "the wish": "move.md",
    "of the same epoch": "diverged-replicas.md",
    "applies nothing": "not-applying.md",
}
"""Which page a flag of HAKeeper belongs to, by words in it. Other flags belong to the page on a
lost store."""


def _flags(report: ClusterReport) -> Iterator[Finding]:
    by_page: dict[str, list[str]] = {}
    told = {
        store.store
        for store in report.stores
        for reason in store.reasons
        if reason.code == "disk_full"
    }
    for flag in report.cluster.flags:
        # The store's own finding says more about its disk, and `_hakeeper` reports a first start.
        if any(flag.startswith(f"disk full: {store} ") for store in told):
            continue
        if flag.startswith("bootstrap:") and _young(report):
            continue
        if _STANDSTILL.fullmatch(flag):
            continue
        page = next((page for words, page in _FLAG_PAGES.items() if words in flag), "lost-store.md")
        by_page.setdefault(page, []).append(flag)
    who = (
        "HAKeeper asks"
        if not report.cluster.hakeeper_error
        else "Before it fell silent HAKeeper asked"
    )
    for page, flags in by_page.items():
        yield Finding(
            Severity.WARNING,
            "flags",
            f"{who} for a person: {_listed(flags, '; ')}",
            "These are things that it must not decide itself.",
            "`logctl repairs` shows all of them.",
            page,
        )


def _holds(report: ClusterReport) -> Iterator[Finding]:
    for shard in report.shards:
        back = shard.requested_truncation_lsn - shard.truncated_lsn
        if shard.holds and back > 0:
            yield Finding(
                Severity.WARNING,
                "hold",
                f"Hold {shard.hold_name!r} of shard {shard.shard} keeps LSN {shard.hold_lsn} and"
                f" above; {back} records that were truncated stay because of it.",
                "The log grows until the hold is moved or released.",
                "Find out who set it. If nobody needs it:"
                f" `logctl hold release {shard.shard} {shlex.quote(shard.hold_name)}`.",
                "forgotten-hold.md",
            )


def _lag(report: ClusterReport) -> Iterator[Finding]:
    told = _standing(report)
    behind = [
        f"shard {shard.shard} on {replica.store}: {_lacks(replica)}"
        for shard in report.shards
        for replica in shard.replicas
        if replica.lag_entries > LAG_ENTRIES
        and replica.health == "alive"
        and (shard.shard, replica.replica) not in told
    ]
    if behind:
        yield Finding(
            Severity.WARNING,
            "lag",
            f"Replicas are far behind: {_listed(behind, '; ')}",
            "They count for no majority until they caught up.",
            "It passes by itself after a restart. If it grows, that store's disk or network is too"
            " slow for the load. If it is too slow: `logctl cluster set --catch-up BYTES_PER_S`.",
            "catch-up.md",
        )


def _lacks(replica: ReplicaRow) -> str:
    said = f"{replica.lag_entries} entries"
    if replica.lag_bytes > 0:
        said += f", {replica.lag_bytes / _MIB:.1f} MiB"
    return said + (f", {replica.to_go_s:.0f} s to go" if replica.to_go_s > 0 else "")


def _differences(report: ClusterReport) -> Iterator[Finding]:
    answering = [store for store in report.stores if store.answers]
    versions = {store.version for store in answering}
    if len(versions) > 1:
        each = ", ".join(f"{store.store} {store.version}" for store in answering)
        yield Finding(
            Severity.NOTICE,
            "versions",
            f"The stores run different versions: {each}",
            "That is right during a rolling upgrade, and only then.",
            "Finish the upgrade.",
            "rolling-upgrade.md",
        )
    elif (
        report.cluster.next_version
        and not report.cluster.holding_back
        and report.cluster.phase == "running"  # a new cluster raises its version by itself
    ):
        yield Finding(
            Severity.NOTICE,
            "cluster_version",
            f"The cluster is at version {report.cluster.cluster_version}, and every store knows"
            f" version {report.cluster.next_version}.",
            "It does nothing that older programs cannot, and can be taken back to them.",
            "When nobody wants to go back any more: `logctl upgrade raise`.",
            "rolling-upgrade.md",
        )
    yield from _configured(report, answering)
    for store in answering:
        if abs(store.clock_offset_us) > CLOCK_SKEW_US:
            yield Finding(
                Severity.WARNING,
                "clock",
                f"The clock of {store.store} is {store.clock_offset_us / 1e6:+.1f} s off that of"
                f" {report.cluster.asked_store}.",
                "What a log keeps depends on no clock; certificates and the times in logs do.",
                "Check the time service on both machines.",
            )


def _configured(report: ClusterReport, answering: Sequence[StoreRow]) -> Iterator[Finding]:
    """Settings that a configuration file names otherwise than they are."""
    in_force = report.cluster.settings
    for name in sorted(in_force):
        others = [
            f"{store.store} says {store.configured[name]}"
            for store in answering
            if store.configured.get(name, in_force[name]) != in_force[name]
        ]
        if others:
            yield Finding(
                Severity.NOTICE,
                "settings",
                f"{name} is {in_force[name]} in the cluster, and {_listed(others, ', ')}.",
                "Configuration files name it for the first start only: the cluster's value counts.",
                "Bring the files up to date, or change the cluster: `logctl cluster set`.",
            )


def _homeless(report: ClusterReport) -> Iterator[Finding]:
    """Zones that logs want their leaders in and that no store names: a slip, or a zone that ended.

    While labels are being given out no store may name one, so nothing is refused for it.
    """
    if report.cluster.hakeeper_error:
        return
    known = {store.zone for store in report.stores}
    nowhere: dict[str, list[ShardRow]] = {}
    for shard in report.shards:
        home = shard.leader_zone
        if home and not any(is_in(zone, home) for zone in known):
            nowhere.setdefault(home, []).append(shard)
    zones = _listed(sorted(known - {""}), ", ") or "none"
    for home, shards in sorted(nowhere.items()):
        yield Finding(
            Severity.NOTICE,
            "leader_zone",
            f"{_shards(shards)} should be led in zone {home}, and no store is there;"
            f" the zones are: {zones}.",
            "Leaders go wherever leaders are fewest.",
            "Name another zone, or '' for anywhere: `logctl shard set SHARD --leader-zone ZONE`.",
            "zones.md",
        )


# --- words ----------------------------------------------------------------------------------------


def _down(shard: ShardRow) -> list[str]:
    return [item.store for item in shard.replicas if item.health not in ("", "alive")]


def _away(report: ClusterReport, shard: ShardRow) -> set[str]:
    """The stores that do not answer. Replicas may come back with them."""
    away = {store.store for store in report.stores if not store.answers}
    return away | {item.store for item in shard.replicas if item.health == "silent"}


def _chance(report: ClusterReport, shard: ShardRow) -> Chance:
    """What the shard can hope for, by the replicas that run now and those that would run if every
    store ran.
    """
    voters = [item for item in shard.replicas if item.role != "learner"]
    silent = _away(report, shard)
    needed = max(len(voters), shard.voters) // 2 + 1
    live = sum(item.health in ("", "alive") for item in voters)
    # A member whose store no report names may be on any store that is down.
    back = sum(item.health not in ("", "alive") and item.store in silent for item in voters)
    back += min(max(0, shard.voters - len(voters)), len(silent))
    if live >= needed:
        return Chance.ELECTION
    return Chance.IF_STORES_RETURN if live + back >= needed else Chance.GONE


def _one_failure_left(shard: ShardRow) -> bool:
    voters = [item for item in shard.replicas if item.role != "learner"]
    return 2 * (sum(item.health in ("", "alive") for item in voters) - 1) <= len(voters)


def _who_is_missing(report: ClusterReport, *shards: ShardRow | None) -> str:
    known = [shard for shard in shards if shard is not None]
    down = sorted({store for shard in known for store in _down(shard)})
    away = {store for shard in known for store in _away(report, shard)}
    running = [store for store in down if store not in away]
    words = []
    if silent := [store for store in down if store in away]:
        words.append(f"Missing: {', '.join(silent)}.")
    if running:
        words.append(f"Running, but without a replica that counts: {', '.join(running)}.")
    return " ".join(words)


def _spare(report: ClusterReport, shards: Sequence[ShardRow]) -> str:
    live = {store.store for store in report.stores if store.answers}
    stuck = sum(not live - {item.store for item in shard.replicas} for shard in shards)
    if not stuck:
        return "on the other stores"
    return f"but {stuck} shards have no spare store to go to: add one"


def _shards(shards: Sequence[ShardRow]) -> str:
    ids = _listed([str(shard.shard) for shard in shards], ", ")
    return f"Shard {ids}" if len(shards) == 1 else f"Each of {len(shards)} shards ({ids})"


def _listed(parts: Sequence[str], between: str) -> str:
    more = f"{between}and {len(parts) - _SHOWN} more" if len(parts) > _SHOWN else ""
    return between.join(parts[:_SHOWN]) + more
