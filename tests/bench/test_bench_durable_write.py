"""The bench of durable writes writes what it says it writes, on all of its sides."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.storage import durable_write
from bench.storage.durable_write import File, Shape, main


@pytest.mark.parametrize("count", [3, 512, 513, 3000])
def test_all_sides_write_the_same(tmp_path: Path, count: int) -> None:
    file = File(str(tmp_path / "f"))
    buffers = [b"%04d" % number for number in range(2 * count)]
    wanted = b"".join(buffers)
    for side in (file.two_calls, file.one_call, file.pieces):
        offset = file.place(len(wanted))
        side(buffers, offset)
        with (tmp_path / "f").open("rb") as written:
            written.seek(offset)
            assert written.read(len(wanted)) == wanted
    file.close()
    assert not list(tmp_path.iterdir())


def test_it_prints_a_row_for_each_shape(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = (Shape("few", 2, 10), Shape("many", 600, 10))
    monkeypatch.setattr(durable_write, "SHAPES", shapes)
    monkeypatch.setattr(durable_write, "tune_interpreter", lambda: None)
    main([str(tmp_path), "--writes", "2", "--rounds", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["few", "many"]
    assert "pieces" not in lines[2]
    assert "pieces" in lines[3]
    assert not list(tmp_path.iterdir())
