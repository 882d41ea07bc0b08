"""Jobs of the simulated world: what they append, how it is joined, who notices what is wrong."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from logservice_wire.block import is_wide, validate_block
from logservice_wire.column_block import encode_columns

from logservice import bounds
from logservice.ids import Lsn, SessionId, ShardId, Term
from logservice.lineage import LINEAGE_BYTES, NO_LINEAGE
from logservice.nodehost.replica.log_reading import LogRun, LogSlice
from logservice.owner import Author, owner_digest
from logservice.rsm import named_sessions
from logservice.rsm.commands import BeginLineage, OpenNamedSession
from logservice.rsm.log_rsm import LogRsm
from logservice.rsm.named_sessions import NamedSession, nonce_of
from logservice.sim.campaign import world_of
from logservice.sim.checkers.named import Named
from logservice.sim.clients import final_checks
from logservice.sim.clients.client import Granted, ShardHistory, runs_of, stamps_of
from logservice.sim.clients.job_blocks import (
    JobBlock,
    Work,
    headers_of,
    keys_of,
    times_of,
    wide_batch_of,
)
from logservice.sim.clients.job_checks import jobs
from logservice.sim.clients.job_record import ANY_EPOCH, EpochRecord, JobHistory, Sent
from logservice.sim.clients.neighbour import Neighbour
from logservice.sim.config import SimConfig, make_jobs
from logservice.sim.history import Append, Outcome, Read, Run, check
from logservice.sim.oracle import Oracle
from logservice.sim.world import World
from tests.owners import APP
from tests.rsm.shard_driver import ShardDriver

SHARD = ShardId(1)
STORE: Any = SimpleNamespace(store_id="s1")


# --- what they append -----------------------------------------------------------------------------


def test_every_attempt_has_the_same_bytes_and_other_rows_another_content() -> None:
    first, again, other = Work("j", 3, "a"), Work("j", 3, "a"), Work("j", 3, "b")
    assert [one.encode(7) for one in first.blocks] == [one.encode(7) for one in again.blocks]
    assert first.blocks[0].encode(7) != first.blocks[0].encode(8)
    assert first.content == again.content != other.content
    assert {one.batch for one in first.blocks}.isdisjoint(one.batch for one in other.blocks)
    assert len(Work("j", 3, "a", long=True).blocks) > bounds.SESSION_WINDOW


def test_some_blocks_are_wide_and_a_reader_knows_their_names_and_stamps() -> None:
    blocks = [one for epoch in range(40) for one in Work("j", epoch, "a").blocks]
    wide = 0
    for one in blocks:
        data = one.encode(99)
        assert validate_block(data) == one.count
        wide += is_wide(data)
        run = LogRun(Lsn(4), one.count, Term(1), data)
        found = LogSlice((run,), Lsn(4 + one.count), Lsn(1), Lsn(9))
        assert runs_of(found) == (Run(4, one.count, one.batch),)
        assert list(stamps_of(found)) == [(one.batch, 99)]
    assert 0 < wide < len(blocks)


@pytest.mark.parametrize("changed", ["values", "keys", "headers", "times_us"])
def test_a_wide_block_with_another_column_is_nobodys(changed: str) -> None:
    name, columns = b"j:1a:1", dict[str, Any]()
    columns["values"] = [name, b"", b""]
    columns["keys"], columns["headers"] = keys_of("j:1a:1", 3), headers_of("j:1a:1", 3)
    columns["times_us"] = times_of("j:1a:1", 3)
    assert wide_batch_of(encode_columns(timestamp_us=5, **columns)) == "j:1a:1"
    columns[changed][2] = {"values": b"x", "keys": None, "headers": {}, "times_us": 0}[changed]
    assert wide_batch_of(encode_columns(timestamp_us=5, **columns)) == ""


# --- what is remembered ---------------------------------------------------------------------------


def record(
    rows: str = "a", *, epoch: int = 1, complete: bool = False, heard: int = 0
) -> EpochRecord:
    """Of three blocks of one record each."""
    made = EpochRecord("j", epoch, rows=rows, stamp_us=7, complete=complete, heard=heard)
    for letter in "ab":
        made.works[letter] = Work("j", epoch, letter)
        made.works[letter].blocks = [
            JobBlock(f"{epoch}{letter}{number}", 1, "plain", 0) for number in (1, 2, 3)
        ]
    return made


def sent(
    invoked: float,
    outcome: Outcome,
    *,
    lsn: int = 0,
    late: bool = False,
    writer: int = 0,
    **more: Any,
) -> Sent:
    return Sent(invoked, writer, late, invoked + 1, outcome, lsn, **more)


@pytest.mark.parametrize(
    ("attempts", "joined", "writer"),
    [
        (
            [sent(1, Outcome.UNKNOWN, writer=4), sent(5, Outcome.OK, lsn=9, writer=6)],
            (1, 6, Outcome.OK, 9),
            6,
        ),
        (
            [
                sent(1, Outcome.UNKNOWN, writer=4),
                sent(5, Outcome.OK, lsn=9, writer=6, duplicate=True),
                sent(2, Outcome.OK, lsn=9, writer=6, duplicate=True),
            ],
            (1, 3, Outcome.OK, 9),
            4,
        ),
        (
            [sent(1, Outcome.UNKNOWN, writer=4), sent(2, Outcome.UNKNOWN, writer=5)],
            (1, 2, Outcome.UNKNOWN, 0),
            ANY_EPOCH,
        ),
        ([sent(1, Outcome.FAILED), sent(3, Outcome.FAILED)], (1, 3, Outcome.FAILED, 0), ANY_EPOCH),
        (
            [sent(1, Outcome.UNKNOWN, late=True)],
            (1, 1, Outcome.FAILED, 0),
            ANY_EPOCH,
        ),
        (
            [sent(1, Outcome.FAILED), sent(3, Outcome.OK, lsn=2, late=True)],
            (1, 4, Outcome.OK, 2),
            0,
        ),
    ],
    ids=["later", "repeated", "unknown", "failed", "late", "late and there"],
)
def test_all_attempts_at_a_block_are_one_append(
    attempts: list[Sent], joined: tuple[Any, ...], writer: int
) -> None:
    one = record()
    one.blocks["a", 2] = attempts
    [(append, epoch)] = one.appends()
    assert (append.batch, append.stream, append.sequence) == ("1a2", "j:1a", 2)
    assert (append.invoked, append.returned, append.outcome, append.lsn) == joined
    assert epoch == writer


def test_a_block_of_several_writers_epochs_is_not_judged_by_fencing() -> None:
    history = ShardHistory(epochs={"x": 5, "1a1": ANY_EPOCH}, grants=[Granted(5, 0, 1)])
    history.operations = [
        Append("w", "x", 1, 2, 3, Outcome.OK, 1),
        Append("j", "1a1", 1, 2, 3, Outcome.OK, 2),
    ]
    assert list(final_checks.fencing(history)) == []
    history.epochs["1a1"] = 4
    assert len(list(final_checks.fencing(history))) == 2


# --- how it is judged -----------------------------------------------------------------------------


def final(*batches: str, first: int = 1) -> Read:
    """A final read that begins at `first`, of blocks of one record each."""
    runs = tuple(Run(lsn, 1, batch) for lsn, batch in enumerate(batches, first))
    end = first + len(batches)
    return Read("final", "s1", 50, 50, first, runs, end, first, end - 1, final=True)


WHOLE = ("1a1", "1a2", "1a3", "2b1", "2b2")


def known() -> JobHistory:
    """Epoch 1 is complete; of epoch 2, which has other rows, two blocks are there."""
    return JobHistory([record(complete=True), record("b", epoch=2, heard=2)])


@pytest.mark.parametrize("first", [1, 7])
@pytest.mark.parametrize("gone", range(6))
def test_what_is_there_in_order_or_truncated_is_right(gone: int, first: int) -> None:
    left = WHOLE[gone:]
    assert list(jobs(known(), [final(*left, first=first + gone if gone else first)])) == []


@pytest.mark.parametrize(
    ("batches", "rule"),
    [
        (("1a1", "1a2", "1b1", "1a3", "2b1", "2b2"), "JOB-MIX"),
        (("1a2", "1a1", "1a3", "2b1", "2b2"), "JOB-ORDER"),
        (("2b1", "2b2", "1a1", "1a2", "1a3"), "JOB-ORDER"),
        (("1a1", "1a3", "2b1", "2b2"), "JOB-HOLE"),
        (("1a1", "1a2", "2b1", "2b2"), "JOB-WHOLE"),
        (("1a1", "1a2", "1a3", "2b1"), "JOB-WHOLE"),
        ((), "JOB-WHOLE"),
        (("1a1", "1a2", "1a3"), "JOB-WHOLE"),
        (("2b1", "2b2"), "JOB-WHOLE"),
    ],
)
def test_what_must_not_be_is_said(batches: tuple[str, ...], rule: str) -> None:
    said = list(jobs(known(), [final(*batches)]))
    assert rule in {one.split(":")[0] for one in said}, said


def test_an_attempt_and_a_reader_are_heard() -> None:
    history = known()
    history.stamps = {("1a1", 7), ("somebody's", 3)}
    assert list(jobs(history, [])) == []
    history.stamps.add(("2b1", 8))
    history.broken.append("an epoch went back")
    said = list(jobs(history, []))
    assert [one.split(":")[0] for one in said] == ["JOB-SAID", "JOB-STAMP"]


def test_a_late_block_that_is_there_is_of_an_append_that_failed() -> None:
    one = record()
    one.blocks["a", 1] = [sent(1, Outcome.UNKNOWN, late=True)]
    verdict = check([append for append, _ in one.appends()] + [final("1a1")])
    assert verdict.rules == {"PHANTOM"}


# --- named sessions, entry by entry ---------------------------------------------------------------

OTHER = Author("neighbour", APP.store)


class Watched:
    """A log whose entries a checker sees."""

    def __init__(self) -> None:
        self.log = ShardDriver(LogRsm())
        self.said: list[str] = []
        self.checker = Named(Oracle(), lambda _, detail: self.said.append(detail))

    def see(self) -> list[str]:
        """Show it the newest entry; what it says."""
        self.checker.applied(STORE, SHARD, self.log.entries[-1], self.log.rsm)
        said, self.said = self.said, []
        return said

    def open(
        self, epoch: int, name: str = "n", by: Author = APP, content: bytes = b"c" * 32
    ) -> list[str]:
        self.log.command(OpenNamedSession(by, epoch, 0, epoch + 70, content, name))
        return self.see()

    def append(self, session: int, epoch: int, number: int, name: str = "n") -> list[str]:
        self.log.append(
            session=session,
            sequence=epoch << bounds.SESSION_EPOCH_BITS | number,
            claim=APP.claim(nonce_of(name)),
            block=b"%d" % number,
        )
        return self.see()

    def fork(self) -> list[str]:
        self.log.command(BeginLineage(APP, 1, b"l" * LINEAGE_BYTES, NO_LINEAGE))
        return self.see()

    @property
    def row(self) -> NamedSession:
        found = self.log.rsm.state.named.get(SessionId(1))
        assert found is not None
        return found


@pytest.fixture
def watched() -> Watched:
    """One name, with two blocks of epoch 4 in the log."""
    made = Watched()
    assert made.open(4) == made.append(1, 4, 1) == made.append(1, 4, 2) == []
    return made


def test_inv_rsm_named_holds_of_what_a_log_does(watched: Watched) -> None:
    """INV-RSM-NAMED, INV-RSM-LOST: nothing is said of opening, repeating, going on and forks."""
    assert watched.open(4) == watched.open(3) == watched.open(4, content=b"d" * 32) == []
    assert watched.open(9, by=OTHER) == watched.open(1, "other") == []
    assert watched.append(1, 4, 2) == watched.append(1, 4, 5) == watched.append(1, 3, 1) == []
    for number in range(3, bounds.SESSION_WINDOW + 9):
        assert watched.append(1, 4, number) == []
    assert watched.open(6) == watched.append(1, 6, 1) == watched.append(1, 4, 3) == []
    assert watched.fork() == watched.open(7) == watched.append(1, 7, 1) == []
    assert watched.row.lost


@pytest.mark.parametrize(
    "change",
    [
        {"last_sequence": 5 << 32},
        {"last_sequence": 4 << 32 | 1},
        {"content": b"d" * 32},
        {"stamp_us": 75},
        {"owner": owner_digest("neighbour")},
    ],
    ids=["epoch", "blocks", "content", "stamp", "owner"],
)
def test_a_row_that_is_another_is_noticed(watched: Watched, change: dict[str, Any]) -> None:
    for name, value in change.items():
        setattr(watched.row, name, value)
    assert watched.open(1, "other")


def test_a_forgotten_block_a_row_too_many_and_one_that_is_gone_are_noticed(
    watched: Watched,
) -> None:
    watched.row.window.popleft()
    assert watched.open(3)
    named, state = named_sessions.NamedSessions, watched.log.rsm.state
    twice = {SessionId(1): watched.row, SessionId(2): watched.row}
    state.named = named(twice)
    assert any("2 rows for 1 names" in one for one in watched.open(3))
    state.named = named({})
    assert any("is gone" in one for one in watched.open(3, "other"))


def test_a_memory_that_a_fork_leaves_is_noticed(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-RSM-LOST."""
    monkeypatch.setattr(named_sessions.NamedSessions, "lose_all", lambda _: None)
    assert watched.fork()


def test_a_late_block_that_is_accepted_is_noticed(watched: Watched) -> None:
    assert watched.open(6) == []
    watched.row.last_sequence = 4 << 32 | 2
    assert any("is due at 0x600000001" in one for one in watched.append(1, 4, 3))


# --- whole worlds ---------------------------------------------------------------------------------


def world(seed: int, change: Any) -> tuple[SimConfig, Any]:
    config = world_of(seed, short=True, version=2)
    make_jobs(config)
    change(config)
    report = World(config).run()
    assert report.violations == []
    return config, report.counts


def test_a_world_with_jobs_has_all_kinds_of_attempts() -> None:
    def change(config: SimConfig) -> None:
        config.forks, config.names_max = False, 0

    _, counts = world(7, change)
    for kind in ("died", "late", "refused"):
        assert counts[f"client job attempts {kind}"] > 0
    assert counts["client job blocks late"] > 0
    assert counts["client job epochs complete"] > 10
    assert counts["client job blocks repeated"] > 0


def test_a_world_with_forks_loses_names_and_goes_on() -> None:
    def change(config: SimConfig) -> None:
        config.forks, config.names_max = True, 0

    _, counts = world(7, change)
    assert counts["fault fork"] > 0
    assert counts["client job names lost"] > 0


@pytest.mark.parametrize("forks", [False, True])
def test_the_neighbour_takes_over_no_writer_that_a_fork_may_have_taken(forks: bool) -> None:
    """Short seed 76000371: after a fork nobody holds the epoch, and the neighbour was given it."""
    config = world_of(7, short=True, version=2)
    config.jobs, config.forks = True, forks
    here, asked = World(config), set[str]()
    neighbour = Neighbour(here, 1, SHARD, ShardHistory(epoch=3))

    async def command(build: Any, timeout_s: float = 1.0) -> Any:
        asked.add(type(build(APP)).__name__)

    neighbour.command = command  # type: ignore[method-assign]

    async def ask() -> None:
        for _ in range(40):
            await neighbour._writer()

    try:
        asyncio.run(ask())
    finally:
        here.loop.bury()
    assert asked == {"ReleaseWriter", "Truncate"} | ({"AcquireWriter"} if not forks else set())


def test_a_world_with_room_for_few_names_gives_the_bound_back() -> None:
    """NAMED_SESSIONS_MAX."""
    most = named_sessions.NAMED_SESSIONS_MAX

    def change(config: SimConfig) -> None:
        config.forks, config.names_max = False, 3

    _, counts = world(7, change)
    assert counts["client job names passed"] > 0
    assert named_sessions.NAMED_SESSIONS_MAX == most > 6


def test_jobs_are_in_worlds_of_version_2_without_a_rogue() -> None:
    seeds = range(1, 100)
    assert any(world_of(seed, short=True, version=2).jobs for seed in seeds)
    assert not any(world_of(seed, short=True, version=1).jobs for seed in seeds)
    assert not any(world_of(seed, short=True, rogue=()).jobs for seed in seeds)
    assert any(one.upgrade and one.jobs for one in (world_of(seed) for seed in range(1, 200)))


def test_a_world_that_is_upgraded_has_jobs_once_it_is() -> None:
    """One that is upgraded late has none; so there are three."""
    worlds = (world_of(seed, short=True) for seed in range(1, 200))
    complete = 0
    for config in itertools.islice((one for one in worlds if one.upgrade), 3):
        report = World(replace(config, jobs=True, least_s=40.0)).run()
        assert report.violations == []
        complete += report.counts.get("client job epochs complete", 0)
    assert complete > 0
