"""The configuration of a mirror: what the example says is understood, and mistakes are named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from logservice_wire.errors import InvalidArgument

from logservice import bounds
from logservice.mirror.running import pair_of
from logservice.mirror.settings import load

EXAMPLE = Path(__file__).parents[2] / "deploy" / "mirror.example.toml"
LEAST = """
[source]
endpoints = ["127.0.0.1:1"]
[target]
endpoints = ["127.0.0.1:2"]
[logs.a]
"""


def written(path: Path, text: str) -> Path:
    path = path / "mirror.toml"
    path.write_text(text)
    return path


def test_the_example_has_every_key_with_its_default(tmp_path: Path) -> None:
    example, least = load(EXAMPLE), load(written(tmp_path, LEAST))
    assert example.mirror == least.mirror
    assert example.logs["orders"] == least.logs["a"]
    text = EXAMPLE.read_text()
    for section in (least.mirror, least.source, least.logs["a"]):
        for name in section.__struct_encode_fields__:
            assert re.search(rf"^{name} = ", text, re.MULTILINE), name
    assert pair_of(example, "stock-2026").into == "stock"
    assert pair_of(example, "orders").into == "orders"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "source"),
        ("[source", "mirror.toml"),
        (LEAST.replace("[logs.a]", "[logs]"), "1 to"),
        (LEAST.replace('"127.0.0.1:2"', ""), "no endpoints"),
        (LEAST + "[logs.b]\nas = 'a'", "two logs become 'a'"),
        (LEAST + "truncate = 'sometimes'", "truncate"),
        (LEAST + "from_lsn = -1", "from_lsn"),
        (LEAST + "extra = 1", "extra"),
        (LEAST + "[mirror]\nmib_per_s = 0", "mib_per_s"),
        (LEAST + "[mirror]\nhold = ''", "hold"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        load(written(tmp_path, text))


def test_so_many_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MIRROR_LOGS_MAX", 1)
    load(written(tmp_path, LEAST))
    with pytest.raises(InvalidArgument, match="1 to 1 logs"):
        load(written(tmp_path, LEAST + "[logs.b]"))


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"mirror\.toml"):
        load(tmp_path / "mirror.toml")
