"""top_view: one screen of `logctl top`, made from a report and the report before it; pure.

The screen shows what fits: first the stores, then the shards that need attention or are the
busiest, then the newest events. Rates come from the difference of two reports of the same store,
and so do latencies; the first screen has those since each store started.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from logservice import bounds
from logservice.cli.shell.units import size
from logservice.histogram import quantile
from logservice.safe_text import safe_text
from logservice.server.monitor.cluster.rows import ClusterReport, ReplicaRow, ShardRow, StoreRow
from logservice.server.monitor.own.status import Buckets

SORTS = ("state", "rate", "lag", "shard")

_FIXED_LINES = 10
"""How many lines the titles, the heads of tables and the lines between them take."""

_EVENTS = 5

_WIDE = 120
"""With so many columns every figure of a shard has room; with fewer the dispensable ones are left
out."""

_DISPENSABLE = frozenset(
    {"name", "first LSN", "truncated", "writer"}
    | {"append p50/p99", "read p50/p99", "durable/s", "written/s"}
)
_STATE_NARROW = 24
"""How many columns the state of a shard gets on a screen below `_WIDE`."""

_STATE_LEAST = 8
"""How many columns the reasons of a store get at least; they get what the figures leave, and the
doctor shows all reasons."""

_BETWEEN = 2
"""Columns of the terminal between two of a table."""

_SHORTENED = frozenset({"state", "name", "replicas", "writer"})
"""What may lose its end on a narrow screen. Half a number or half of a store's name says nothing,
so the others may not."""


def screen(
    report: ClusterReport, before: ClusterReport | None, sort: str, lines: int, columns: int
) -> RenderableType:
    """The screen for a terminal of so many lines and columns."""
    rates = Rates(report, before)
    room = max(3, lines - _FIXED_LINES - len(report.stores) - _EVENTS)
    return Group(
        _head(report, rates),
        _alarms(report),
        _stores(report, rates, columns),
        _shards(report, rates, sort, room, wide=columns >= _WIDE),
        _events(report),
    )


class Rates:
    """What happened per second between two reports."""

    def __init__(self, report: ClusterReport, before: ClusterReport | None) -> None:
        """Remember the report before; `before` is None at the first screen."""
        self._seconds = 0.0
        self._shards: dict[int, int] = {}
        self._delayed: dict[int, int] = {}
        self._stores: dict[str, StoreRow] = {}
        if before is not None and before.cluster.asked_store == report.cluster.asked_store:
            self._seconds = (report.cluster.time_us - before.cluster.time_us) / 1e6
            self._shards = {shard.shard: shard.applied_lsn for shard in before.shards}
            self._delayed = {shard.shard: shard.appends_delayed for shard in before.shards}
            self._stores = {store.store: store for store in before.stores}

    def records(self, shard: ShardRow) -> float:
        """Records applied per second; 0 when unknown."""
        return self._per_second(shard.applied_lsn, self._shards.get(shard.shard))

    def held_up(self, shard: ShardRow) -> bool:
        """Whether its limits held appends up between the two reports."""
        return shard.appends_delayed > self._delayed.get(shard.shard, shard.appends_delayed)

    def written(self, store: StoreRow) -> float:
        """Bytes written per second."""
        old = self._stores.get(store.store)
        return self._per_second(store.bytes_written, old.bytes_written if old else None)

    def durable_writes(self, store: StoreRow) -> float:
        """Fsyncs per second."""
        old = self._stores.get(store.store)
        return self._per_second(store.durable_writes, old.durable_writes if old else None)

    def append(self, store: StoreRow) -> str:
        """What appends to the shards that it leads took."""
        old = self._stores.get(store.store)
        return _latency(store.append_seconds, old.append_seconds if old else Buckets())

    def read(self, store: StoreRow) -> str:
        """What its reads took."""
        old = self._stores.get(store.store)
        return _latency(store.read_seconds, old.read_seconds if old else Buckets())

    def _per_second(self, now: int, old: int | None) -> float:
        if old is None or self._seconds <= 0 or now < old:
            return 0.0
        return (now - old) / self._seconds


def _latency(now: Buckets, old: Buckets) -> str:
    """p50 and p99 of what came after `old`; of everything when the store started anew since."""
    counts: Sequence[int] = now.counts
    if old.bounds == now.bounds:
        since = [one - before for one, before in zip(now.counts, old.counts, strict=True)]
        counts = since if min(since, default=0) >= 0 else counts
    if not any(counts):
        return "-"
    return _ms(*(1e6 * quantile(now.bounds, counts, share) for share in (0.5, 0.99)))


def _ms(p50_us: float, p99_us: float) -> str:
    shown = (f"{us / 1000:.{0 if us >= 100_000 else 1}f}" for us in (p50_us, p99_us))
    return f"{'/'.join(shown)} ms"


def trouble(shard: ShardRow) -> tuple[int, str]:
    """How bad the state of a shard is, from 0 (worst) to 9 (well), and a word for it."""
    down = sum(item.health not in ("", "alive") for item in shard.replicas)
    if not shard.leader_store:
        return 0, "no leader"
    if down:
        return 1, f"{down} down"
    if shard.stalled:
        return 2, "truncation stalled"
    if shard.live_voters < shard.wanted:
        return 3, f"{shard.live_voters} of {shard.wanted}"
    if shard.joint:
        return 4, "changing"
    return 9, "ok"


def _plain(text: str, style: str = "") -> Text:
    """A text from a store, without markup and without anything that the terminal would obey."""
    return Text(safe_text(text), style)


def _cell(found: RenderableType) -> RenderableType:
    return _plain(found) if isinstance(found, str) else found


def _head(report: ClusterReport, rates: Rates) -> Text:
    row = report.cluster
    records = sum(rates.records(shard) for shard in report.shards)
    good = row.stores_ready == row.stores and not row.shards_without_leader
    return Text.assemble(
        (safe_text(row.cluster), "bold"),
        f"  {safe_text(row.phase)}  ",
        (f"stores {row.stores_ready}/{row.stores}", "green" if good else "bold red"),
        f"  shards {row.shards - row.shards_without_leader}/{row.shards}"
        f"  repairs {row.operators}  {records:,.0f} records/s"
        f"  seen by {safe_text(row.asked_store)}",
    )


def _alarms(report: ClusterReport) -> RenderableType:
    lines = []
    if report.cluster.hakeeper_error:
        lines.append(_plain(f"HAKeeper: {report.cluster.hakeeper_error}", "bold red"))
    lines += [_plain(flag, "yellow") for flag in report.cluster.flags[:3]]
    return Group(*lines)


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, expand=True, header_style="dim")
    for column in columns:
        left = column in ("store", "state", "shard", "name", "leader", "replicas", "writer")
        table.add_column(column, justify="left" if left else "right", no_wrap=True)
    return table


def _filled(
    columns: Sequence[str],
    rows: Sequence[Mapping[str, RenderableType]],
    state_max: int | None = None,
) -> Table:
    """`state_max`: how many columns of the terminal a state may take."""
    table = _table(*columns)
    for column in table.columns:
        name = str(column.header)
        if name not in _SHORTENED:
            column.min_width = _longest(name, rows)
        elif name == "state":
            column.max_width = state_max
    for row in rows:
        table.add_row(*(_cell(row[name]) for name in columns))
    return table


def _longest(name: str, rows: Sequence[Mapping[str, RenderableType]]) -> int:
    return max(len(str(row[name])) for row in [*rows, {name: name}])


def _stores(report: ClusterReport, rates: Rates, columns: int) -> Table:
    wide = columns >= _WIDE
    rows = [_store_cells(store, rates) for store in report.stores]
    named = [
        name for name in _store_cells(StoreRow(store=""), rates) if wide or name not in _DISPENSABLE
    ]
    others = sum(_longest(name, rows) + _BETWEEN for name in named if name != "state")
    return _filled(named, rows, max(columns - others, _STATE_LEAST))


def _store_cells(store: StoreRow, rates: Rates) -> dict[str, RenderableType]:
    state, style = _store_state(store)
    return {
        "store": _plain(store.store),
        "state": _plain(state, style),
        "leads": f"{store.leaders}/{store.replicas}",
        "log": size(store.disk_used_bytes),
        "disk free": size(store.disk_free_bytes),
        "append p50/p99": rates.append(store),
        "read p50/p99": rates.read(store),
        "durable p50/p99": _ms(store.durable_write_p50_us, store.durable_write_p99_us),
        "durable/s": f"{rates.durable_writes(store):.0f}",
        "written/s": size(rates.written(store)),
    }


def _store_state(store: StoreRow) -> tuple[str, str]:
    if not store.answers:
        return ("silent" if store.alive else "down"), "bold red"
    if not store.ready:
        codes = {reason.code.replace("_", " ") for reason in store.reasons}
        return ", ".join(sorted(codes)), "yellow"
    return "ready", "green"


def _shards(report: ClusterReport, rates: Rates, sort: str, room: int, *, wide: bool) -> Table:
    keys = {
        "state": lambda shard: (trouble(shard)[0], -rates.records(shard), shard.shard),
        "rate": lambda shard: (-rates.records(shard), shard.shard),
        "lag": lambda shard: (-shard.lag_entries, shard.shard),
        "shard": lambda shard: shard.shard,
    }
    ordered = sorted(report.shards, key=keys[sort])
    rows = [_shard_cells(shard, rates) for shard in ordered[:room]]
    shown = [
        name for name in _shard_cells(ShardRow(shard=0), rates) if wide or name not in _DISPENSABLE
    ]
    table = _filled(shown, rows, None if wide else _STATE_NARROW)
    if len(ordered) > room:
        table.caption = f"and {len(ordered) - room} more"
        table.caption_justify = "left"
    return table


def _shard_cells(shard: ShardRow, rates: Rates) -> dict[str, RenderableType]:
    rank, state = trouble(shard)
    if rank == 9 and rates.held_up(shard):
        rank, state = 8, "at its limit"
    to_go_s = max((item.to_go_s for item in shard.replicas if _catches_up(item)), default=0.0)
    if rank == 9 and to_go_s > 0:
        rank, state = 8, f"catching up, {to_go_s:.0f} s"
    style = "green" if rank == 9 else "bold red" if rank == 0 else "yellow"
    return {
        "shard": str(shard.shard),
        "name": shard.name,
        "state": _plain(state, style),
        "leader": shard.leader_store or "-",
        "replicas": _members(shard),
        "lag": str(shard.lag_entries) if shard.lag_entries >= 0 else "?",
        "records/s": f"{rates.records(shard):,.0f}",
        "first LSN": str(shard.first_lsn),
        "applied LSN": str(shard.applied_lsn),
        "truncated": str(shard.truncated_lsn),
        "writer": shard.writer_holder or "-",
    }


def _catches_up(replica: ReplicaRow) -> bool:
    return replica.lag_bytes > bounds.CATCH_UP_BEHIND_BYTES


def _members(shard: ShardRow) -> Text:
    text = Text()
    for item in shard.replicas:
        bad = item.health not in ("", "alive")
        text.append(safe_text(item.store), "red" if bad else "bold" if item.leader else "")
        text.append(" ")
    return text


def _events(report: ClusterReport) -> RenderableType:
    lines = [
        Text.assemble(
            (safe_text(f"{event.store}  "), "bold"),
            safe_text(event.message),
            overflow="ellipsis",
            no_wrap=True,
        )
        for event in report.cluster.events[:_EVENTS]
    ]
    return Group(Text("newest events", "dim"), *lines)
