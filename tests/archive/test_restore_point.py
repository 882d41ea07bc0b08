"""Which LSN a point in time is, in an archive, and when an archive cannot tell (INV-RESTORE-6)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from logservice_wire.errors import InvalidArgument

from logservice.archive.damage import ArchiveDamaged
from logservice.archive.restore_plan import end_of
from logservice.archive.restore_point import PointTooEarly, PointTooLate, moment
from logservice.archive.restore_source import object_runs
from logservice.cli.shell.moment import moment_us
from tests.archive.test_restore_plan import Made


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """LSNs 1 to 10 are missing. The blocks from 11, 21, 31, 41, 51 on have the times 100 to 104;
    the gaps from 39 and 59 on 103 and 105.
    """
    archive = Made(tmp_path)
    archive.missing(1, 11)
    archive.add(11, 30)
    archive.add(41, 20)
    return archive


@pytest.mark.parametrize(
    ("point_us", "end_lsn"), [(100, 21), (101, 31), (102, 39), (103, 51), (104, 59)]
)
def test_a_point_is_behind_the_last_block_of_its_time(
    made: Made, point_us: int, end_lsn: int
) -> None:
    plan = made.plan(point_us=point_us)
    assert (plan.base_lsn, plan.end_lsn, plan.last_time_us) == (11, end_lsn, point_us)
    assert plan == made.plan(end_lsn=end_lsn)
    assert end_of(made.files, 1, None, point_us) == end_lsn
    assert end_of(made.files, 1, None, None) == 61


def test_a_point_outside_of_the_archive_is_refused(made: Made) -> None:
    with pytest.raises(PointTooEarly) as early:
        made.plan(point_us=99)
    assert (early.value.number("lsn"), early.value.number("append_time_us")) == (11, 100)
    for point_us in (105, 106):
        with pytest.raises(PointTooLate) as late:
            made.plan(point_us=point_us)
        assert (late.value.number("lsn"), late.value.number("append_time_us")) == (60, 105)
    with pytest.raises(InvalidArgument, match="the archive has LSNs"):
        made.plan(point_us=101, from_lsn=31)
    assert end_of(made.files, 3, None, 101) is None


def test_what_is_missing_behind_the_point_may_be_older(made: Made) -> None:
    made.missing(61, 71)
    made.time_us = 110
    made.add(71, 10)
    assert made.plan(point_us=104).end_lsn == 59
    for point_us in (105, 107, 110):
        with pytest.raises(InvalidArgument, match="LSNs 61 to 70 were truncated"):
            made.plan(point_us=point_us)
    for from_lsn in (11, 71):
        with pytest.raises(InvalidArgument, match="may be from before that time"):
            made.plan(point_us=107, from_lsn=from_lsn)
    assert made.plan(point_us=110, from_lsn=71).end_lsn == 79
    only = Made(made.root, 2)
    only.missing(1, 5)
    with pytest.raises(InvalidArgument, match="all is missing"):
        only.plan(point_us=100)


def test_lsns_without_times_are_at_no_point(tmp_path: Path) -> None:
    archive = Made(tmp_path)
    archive.add(1, 30, timed=False)
    with pytest.raises(InvalidArgument, match="LSN 30 has no append time"):
        archive.plan(point_us=100)
    archive.time_us = 200
    archive.add(31, 30)
    with pytest.raises(InvalidArgument, match="LSN 30 has no append time"):
        archive.plan(point_us=199)
    plan = archive.plan(point_us=200)
    assert (plan.end_lsn, plan.timed, plan.last_time_us) == (41, False, 0)


def test_inv_restore_6_an_object_may_end_between_two_blocks_of_one_entry(tmp_path: Path) -> None:
    """They have one time, and the archive ended before it had the second one."""
    archive = Made(tmp_path)
    archive.add(1, 30)
    with pytest.raises(PointTooLate):
        archive.plan(point_us=103)
    archive.time_us = 103
    archive.add(31, 12)
    assert archive.plan(point_us=103).end_lsn == 41


@pytest.mark.parametrize("said", [(50, 60), (102, 105), (104, 105), (1000, 2000)])
def test_a_row_that_says_other_times_is_found(made: Made, said: tuple[int, int]) -> None:
    made.change(41, append_time_us=said)
    for point_us in (103, 104):
        with pytest.raises(ArchiveDamaged, match="append times that its row does not say"):
            made.plan(point_us=point_us)


def test_times_that_go_back_are_found(tmp_path: Path) -> None:
    """The rows lead to the last object; in the first one lie younger records."""
    archive = Made(tmp_path)
    archive.time_us = 200
    archive.add(1, 30)
    archive.add(31, 30, timed=False)
    archive.time_us = 100
    archive.add(61, 30)
    with pytest.raises(ArchiveDamaged, match="append time at LSN 1"):
        archive.plan(point_us=101)


def test_damage_behind_the_point_is_seen_where_it_matters(made: Made) -> None:
    """The object that proves the end is read, too; those behind it are not."""
    made.add(61, 20)
    made.object_of(41).unlink()
    with pytest.raises(ArchiveDamaged, match="is gone"):
        made.plan(point_us=103)
    assert made.plan(point_us=101).end_lsn == 31


def test_an_end_that_was_found_is_not_looked_for_again(made: Made) -> None:
    """What proved it is not read twice; but nothing younger than the point is taken."""
    made.time_us = 110
    made.add(61, 20)
    end_lsn = end_of(made.files, 1, None, 105)
    assert end_lsn == 61
    made.object_of(61).unlink()
    with pytest.raises(ArchiveDamaged, match="is gone"):
        made.plan(point_us=105)
    assert made.plan(point_us=105, end_lsn=end_lsn).last_time_us == 105
    with pytest.raises(ArchiveDamaged, match="append time at LSN 59"):
        made.plan(point_us=104, end_lsn=end_lsn)


@pytest.mark.parametrize("seed", range(20))
def test_a_point_is_what_the_times_of_all_lsns_say(seed: int, tmp_path: Path) -> None:
    """Whether the rows say their times or not."""
    rng = random.Random(seed)
    archive, lsn = Made(tmp_path), 1
    for _ in range(rng.randint(1, 4)):
        count = rng.randint(3, 40)
        hint = {} if rng.random() < 0.7 else {"append_time_us": None}
        archive.add(lsn, count, **hint)
        lsn += count
        archive.time_us += rng.choice((0, 1, 5))
    times: dict[int, int] = {}
    for row in archive.manifest.rows():
        with object_runs(archive.manifest, row, None) as found:
            for run in found:
                of_run = range(run.first_lsn, run.first_lsn + run.count)
                times.update(dict.fromkeys(of_run, run.append_time_us))
    assert sorted(times) == list(range(1, lsn))
    for point_us in range(99, max(times.values()) + 2):
        wanted = [one for one, time_us in times.items() if time_us <= point_us]
        if not wanted:
            with pytest.raises(PointTooEarly):
                archive.plan(point_us=point_us)
        elif point_us >= max(times.values()):
            with pytest.raises(PointTooLate):
                archive.plan(point_us=point_us)
        else:
            assert archive.plan(point_us=point_us).end_lsn == max(wanted) + 1


def test_a_moment_is_one_that_the_command_line_reads() -> None:
    for time_us in (1, 1_795_624_800_000_001, 2**53):
        assert moment_us(moment(time_us)) == time_us
