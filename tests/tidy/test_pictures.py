"""The committed pictures are what `make pictures` makes, and the page's is small."""

from __future__ import annotations

from tools.make_pictures import PICTURES, benchmark_rows, pictures
from tools.take_screenshot import SIZE_BYTES_MAX


def test_the_drawings_are_what_the_script_makes() -> None:
    made = pictures()
    assert {name: (PICTURES / name).read_text("utf-8") for name in made} == made


def test_a_row_of_the_table_is_read_as_it_stands() -> None:
    page = "## All rounds\n| 1 caller | 41.9 k (41 k - 42 k) | 1 | 918 (872 - 1011) | 1 | 5.6x |\n"
    (row,) = benchmark_rows(page + "| blocks | 752 k (685 k - 861 k) | 1 | - | - |  |\n")
    assert (row.workload, row.ours, row.etcd) == ("1 caller", 41_900, 918)


def test_the_screenshot_is_small() -> None:
    assert (PICTURES / "ui.png").stat().st_size <= SIZE_BYTES_MAX
