"""Tables fit the screen that there is, and say sizes and times with their units; a pipe cuts
nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios

import pytest
from rich.cells import cell_len

from logservice import bounds
from logservice.cli.shell.output import show_fields, show_rows

STORES = [
    {
        "store": f"store-{number}.eu-central-1.example",
        "alive": True,
        "replicas": 1200 + number,
        "disk_used_bytes": 3 << 29,
        "disk_free_bytes": 800 << 30,
        "ticks_since_heartbeat": 7,
        "host": f"machine-{number}.a-long-domain-of-some-data-centre.example",
        "client": f"machine-{number}.a-long-domain-of-some-data-centre.example:7401",
        "labels": {"rack": f"r{number}", "disk": "nvme"},
        "failed_directories": [],
    }
    for number in range(200)
]
MAIN = ("store", "alive", "replicas", "disk_used_bytes", "disk_free_bytes", "ticks_since_heartbeat")

SHOW = """
import json, sys
from logservice.cli.shell.output import show_rows
rows, form = json.loads(sys.argv[1]), sys.argv[2]
show_rows(form, rows, "stores")
"""


@pytest.fixture(autouse=True)
def no_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(sys, "__stdout__", None)


def shown(capsys: pytest.CaptureFixture[str], *given: object, **options: object) -> list[str]:
    show_rows(*given, **options)  # type: ignore[arg-type]
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("columns", [40, 80, 100, 200])
@pytest.mark.parametrize("form", ["table", "wide"])
def test_every_line_fits_and_no_cell_is_cut(
    form: str, columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = shown(capsys, form, STORES, "stores", main=MAIN)
    assert max(map(cell_len, lines)) <= columns
    text = "".join("".join(lines).split())
    assert "…" not in text
    for figure in ("1.5GiB", "800GiB", "700ms"):
        assert text.count(figure) == len(STORES), figure


def test_a_pipe_cuts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, "wide", STORES, "stores", main=MAIN)
    assert len(lines) == 2 + len(STORES)
    for number, line in enumerate(lines[2:]):
        assert f"machine-{number}.a-long-domain-of-some-data-centre.example:7401" in line
        assert line == line.rstrip()


def test_a_terminal_without_columns_has_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 66, 0, 0))
    environment = {name: said for name, said in os.environ.items() if name != "COLUMNS"}
    command = [sys.executable, "-c", SHOW, json.dumps(STORES[:3]), "wide"]
    done = subprocess.Popen(command, stdout=theirs, env=environment)
    os.close(theirs)
    read = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # Linux says so of a terminal that no process has
            break
        if not part:
            break
        read += part
    assert done.wait() == 0
    os.close(ours)
    lines = read.decode().splitlines()
    assert lines[0] == "stores"
    assert 0 < max(map(len, lines)) <= 66
    assert any(line.split(maxsplit=1) == ["labels", "rack=r2, disk=nvme"] for line in lines)


@pytest.mark.parametrize("columns", ["0", "-4", "many", ""])
def test_columns_that_are_no_width_are_none(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert len(shown(capsys, "table", STORES, "stores", main=MAIN)) == 2 + len(STORES)


def test_one_column_of_width_is_no_defect(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "1")
    assert "alive            yes" in shown(capsys, "table", STORES[:1], main=MAIN)


def test_what_is_rare_and_important_is_shown_when_it_is_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    named = {"main": MAIN, "if_any": ("failed_directories",)}
    assert "failed" not in shown(capsys, "table", STORES[:2], **named)[0]
    broken = [STORES[0], {**STORES[1], "failed_directories": ["/mnt/disk-2"]}]
    lines = shown(capsys, "table", broken, **named)
    assert lines[0].endswith("failed directories")
    assert lines[2].endswith("/mnt/disk-2")


def test_json_has_the_fields_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = shown(capsys, "json", STORES, "stores", main=MAIN)
    assert json.loads(line) == STORES


def test_what_a_terminal_would_obey_is_spelled_out(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "\x1b[31mred\r\n[link=x]"
    lines = shown(capsys, "table", [{hostile: hostile, "note": hostile}], hostile)
    show_fields("table", {"note": hostile})
    text = "".join(lines) + capsys.readouterr().out
    assert "\x1b" not in text
    assert "\r" not in text
    assert text.count("[link=x]") == 5


@pytest.mark.parametrize(
    ("field", "value", "line"),
    [
        ("disk_used_bytes", 0, "disk used  0 B"),
        ("disk_used_bytes", 1023, "disk used  1023 B"),
        ("disk_used_bytes", 1024, "disk used  1 KiB"),
        ("disk_used_bytes", 3 << 29, "disk used  1.5 GiB"),
        ("disk_used_bytes", (10 << 30) + (1 << 29), "disk used  10 GiB"),
        ("disk_used_bytes", 5 << 40, "disk used  5 TiB"),
        ("disk_used_bytes", 5 << 60, "disk used  5242880 TiB"),
        ("bytes", 1 << 20, "bytes  1 MiB"),
        ("max_bytes_per_s", 10 << 20, "max  10 MiB/s"),
        ("max_records_per_s", 5000, "max records  5000/s"),
        ("durable_write_p50_us", 2776, "durable write p50  2.78 ms"),
        ("durable_write_p50_us", 85, "durable write p50  85 us"),
        ("age_s", 0, "age  0 s"),
        ("age_s", 2.84, "age  2.8 s"),
        ("age_s", 59.9, "age  1 min"),
        ("age_s", 3599, "age  59 min 59 s"),
        ("retention_age_s", 7 * 86_400, "retention age  7 d"),
        ("retention_age_s", 90_061, "retention age  1 d 1 h"),
        ("decided_s_ago", 12.0, "decided  12 s ago"),
        ("age_ticks", 65 * bounds.HAKEEPER_TICKS_PER_S, "age  1 min 5 s"),
        ("ticks_since_heartbeat", 3, "since heartbeat  300 ms"),
        ("archived_us", 1_700_000_000_000_000, "archived  2023-11-14T22:13:20Z"),
        ("behind_bytes", {"s2": 2048}, "behind  s2=2 KiB"),
        ("first_lsn", 4711, "first lsn  4711"),
        ("behind_s", None, "behind  -"),
        ("halted", "", "halted  -"),
        ("repair_off_s", True, "repair off  yes"),
    ],
)
def test_figures_have_their_units(
    field: str, value: object, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show_fields("table", {field: value})
    assert capsys.readouterr().out == f"{line}\n"


def test_a_long_value_goes_on_under_its_beginning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    show_fields("table", {"holds": [f"nightly-backup-{number}" for number in range(3)], "term": 3})
    assert capsys.readouterr().out.splitlines() == [
        "holds  nightly-backup-0,",
        "       nightly-backup-1,",
        "       nightly-backup-2",
        "term   3",
    ]
