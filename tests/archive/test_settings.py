"""The configuration of an archive: what the example says is understood, and mistakes are named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from logservice_wire.errors import InvalidArgument

from logservice import bounds
from logservice.archive.folder import Folder
from logservice.archive.settings import LogsSection, files_of, keys_of, load

EXAMPLE = Path(__file__).parents[2] / "deploy" / "archive.example.toml"
LEAST = """
[archive]
folder = "f"
[cluster]
endpoints = ["127.0.0.1:1"]
[logs]
names = ["a"]
"""
BUCKET = LEAST.replace('folder = "f"', "") + '[bucket]\nname = "bucket"\n'


def written(path: Path, text: str) -> Path:
    path = path / "archive.toml"
    path.write_text(text)
    return path


def test_the_example_has_every_key_with_its_default(tmp_path: Path) -> None:
    example = load(EXAMPLE)
    least = load(written(tmp_path, LEAST))
    for name in least.archive.__struct_fields__:
        if name != "folder":
            assert getattr(example.archive, name) == getattr(least.archive, name), name
    text = EXAMPLE.read_text()
    for section in (least.archive, least.cluster, least.logs):
        for name in section.__struct_fields__:
            assert re.search(rf"^{name} = ", text, re.MULTILINE), name
    bucket = load(
        written(
            tmp_path,
            re.sub("^# (?=[a-z]+ = |\\[)", "", text, flags=re.MULTILINE).replace(
                'folder = "/srv/logservice-archive"', ""
            ),
        )
    )
    assert bucket.bucket is not None
    for name in bucket.bucket.__struct_fields__:
        assert re.search(rf"^# {name} = ", text, re.MULTILINE), name


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "archive"),
        ("[archive", "archive.toml"),
        (LEAST.replace('"f"', '""'), "a folder or in a bucket|archive.folder or in a bucket"),
        (LEAST + '[bucket]\nname = "bucket"\n', "archive.folder or in a bucket"),
        (BUCKET.replace('"bucket"', '"Bucket!"'), "bucket.name"),
        (BUCKET + 'prefix = "/a/../b//"', "bucket.prefix"),
        (LEAST.replace('names = ["a"]', ""), "choose no log"),
        (LEAST + "other = 1", "other"),
        (LEAST.replace("[cluster]", "object_bytes = 0\n[cluster]"), "object_bytes"),
        (
            LEAST.replace(
                "[cluster]", f"object_bytes = {bounds.ARCHIVE_OBJECT_BYTES_MAX + 1}\n[cluster]"
            ),
            "object_bytes",
        ),
        (LEAST.replace("[cluster]", "object_age_s = 0.0\n[cluster]"), "object_age_s"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        load(written(tmp_path, text))


def test_logs_are_chosen_by_name_or_by_labels() -> None:
    by_name = LogsSection(names=["wal-*", "a?"])
    assert by_name.choose("wal-1", {})
    assert by_name.choose("ab", {})
    assert not by_name.choose("abc", {"tier": "gold"})
    by_label = LogsSection(labels={"tier": "gold", "team": ""})
    assert by_label.choose("x", {"tier": "gold", "team": "shop", "more": "1"})
    assert not by_label.choose("x", {"tier": "gold"})
    assert not by_label.choose("x", {"tier": "silver", "team": "shop"})
    assert not LogsSection().choose("x", {})


def test_where_the_files_and_the_keys_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(written(tmp_path, LEAST))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgument, match="there is no folder f"):
        files_of(settings)
    (tmp_path / "f").mkdir()
    assert isinstance(files_of(settings), Folder)
    assert keys_of(settings) is None
    both = LEAST.replace("[cluster]", 'keys_file = "k"\nkeys_command = ["k"]\n[cluster]')
    with pytest.raises(InvalidArgument, match="a file or a command"):
        keys_of(load(written(tmp_path, both)))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    with pytest.raises(InvalidArgument, match="AWS_ACCESS_KEY_ID"):
        files_of(load(written(tmp_path, BUCKET)))
