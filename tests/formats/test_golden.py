"""Bytes that were written once still mean the same, or are refused by their version."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from logservice_wire.errors import WrongCluster

from logservice import versions
from logservice.hakeeper import state
from logservice.hakeeper.commands import proposals, replies
from logservice.ids import ClusterId, Incarnation, StoreId
from logservice.logdb.io.data_directory import IDENTITY_NAME, DataDirectory, Identity
from logservice.logdb.io.posix_vfs import PosixVfs
from logservice.nodehost.transport.wire import control
from logservice.rsm import snapshot_codec
from tests.formats.catalogue import FORMATS
from tests.formats.form import GOLDEN, Format, Sample, read_golden, same
from tests.tidy.source_tree import ROOT, python_files

BY_NAME = {one.name: one for one in FORMATS}
SAMPLES = [
    pytest.param(one, sample, id=f"{one.name}: {sample.name}")
    for one in FORMATS
    for sample in one.samples
]
NO_FORMAT = frozenset({"logservice.server.version", "logservice_wire.rpcs"})
"""Modules with a version that is not the version of a byte format."""


def golden_files() -> Iterator[tuple[str, int, Path]]:
    for path in sorted(GOLDEN.iterdir()):
        match = re.fullmatch(r"([a-z-]+)-v([0-9]+)(-c[0-9]+)?\.hex", path.name)
        assert match is not None, f"{path.name} is not named by a format and its version"
        yield match[1], int(match[2]), path


@pytest.mark.parametrize("one", FORMATS, ids=lambda one: one.name)
def test_every_format_has_golden_files(one: Format) -> None:
    for path, samples in one.golden().items():
        assert path.exists(), "run `python -m tests.formats`"
        assert list(read_golden(path)) == [sample.name for sample in samples], (
            "what is in a golden file stays; a new sample belongs to the newest cluster version"
        )


def test_what_is_written_at_each_cluster_version_is_stated_once() -> None:
    """`versions.WRITTEN` has the formats that differ between cluster versions, and only those."""
    for name, written in versions.WRITTEN.items():
        assert list(written) == list(range(versions.FIRST, versions.NEWEST + 1))
        assert written[versions.FIRST] == BY_NAME[name].version
    forms = {
        "hakeeper-proposal": proposals._VERSIONS,
        "hakeeper-reply": replies._VERSIONS,
        "hakeeper-state": state._VERSIONS,
    }
    for name, numbers in forms.items():
        assert {at: byte[0] for at, byte in numbers.items()} == versions.WRITTEN[name]
    assert versions.WRITTEN["log-state"] == snapshot_codec._VERSIONS


def holds(present: object, golden: object) -> bool:
    """Whether everything that the golden value says stands in the present one, too."""
    if isinstance(golden, dict) and isinstance(present, dict):
        return all(key in present and holds(present[key], golden[key]) for key in golden)
    if isinstance(golden, list) and isinstance(present, list):
        return len(golden) == len(present) and all(map(holds, present, golden))
    return present == golden


@pytest.mark.parametrize(("one", "sample"), SAMPLES)
def test_golden_bytes_are_read_and_written_again(one: Format, sample: Sample) -> None:
    data = read_golden(one.path(sample))[sample.name]
    decoded = sample.decode(data)
    assert sample.show(decoded) == sample.show(sample.value)
    advice = f"the bytes of {one.name} changed: give it another version, then `-m tests.formats`"
    if sample.grows:
        written = sample.encode(sample.value)
        assert written[:1] == data[:1], advice
        assert holds(msgspec.msgpack.decode(written[1:]), msgspec.msgpack.decode(data[1:])), advice
        return
    assert sample.encode(sample.value) == data, advice
    if sample.show is same:
        assert sample.encode(decoded) == data


OLD = [
    pytest.param(BY_NAME[name], path, version, id=path.stem)
    for name, version, path in golden_files()
    if version not in BY_NAME[name].readable and name not in ("peer-protocol", "identity")
]


@pytest.mark.parametrize(("one", "path", "version"), OLD)
def test_other_versions_are_refused(one: Format, path: Path, version: int) -> None:
    samples = {sample.name: sample for sample in one.samples}
    assert one.error is not None
    for name, data in read_golden(path).items():
        with pytest.raises(one.error, match=rf"(version|format) 0?{version:x}\b"):
            samples[name].decode(data)


def test_a_directory_of_an_older_version_is_refused_when_it_is_opened(tmp_path: Path) -> None:
    """Its identity can be read, because that carries the version."""
    data = read_golden(GOLDEN / "identity-v1.hex")["identity file"]
    assert Identity.decode(data).format_version == 1
    (tmp_path / IDENTITY_NAME).write_bytes(data)
    with pytest.raises(WrongCluster, match="version 1") as refused:
        DataDirectory.open(
            str(tmp_path), vfs=PosixVfs(), cluster_id=ClusterId("c1"), store_id=StoreId("stör-1")
        )
    assert refused.value.metadata["field"] == "format_version"
    assert (tmp_path / IDENTITY_NAME).read_bytes() == data


def test_a_directory_of_release_0_1_0_is_opened_and_stays_as_it_is(tmp_path: Path) -> None:
    """Its hard bounds are those of cluster version 1, which nobody may change any more."""
    (tmp_path / IDENTITY_NAME).touch()
    inode = (tmp_path / IDENTITY_NAME).stat().st_ino
    mine = Identity(ClusterId("c1"), StoreId("s1"), Incarnation(7), 2, 876778781, inode)
    (tmp_path / IDENTITY_NAME).write_bytes(mine.encode())
    opened = DataDirectory.open(
        str(tmp_path), vfs=PosixVfs(), cluster_id=ClusterId("c1"), store_id=StoreId("s1")
    )
    assert opened.identity == mine == mine.of(versions.FIRST)
    opened.close()
    assert (tmp_path / IDENTITY_NAME).read_bytes() == mine.encode()


def test_the_handshake_of_every_version_says_which_it_is() -> None:
    """So the store that hears it can refuse it by name; the rest of the frame may be unreadable."""
    for name, version, path in golden_files():
        if name == "peer-protocol":
            assert control.decode_hello(read_golden(path)["hello"]).protocol == version


REFUSING = [one for one in FORMATS if one.constant and one.error and one.name != "peer-protocol"]
"""The versions of the other formats are judged elsewhere: by the handshake, or when a directory is
opened; a book or a commit group of another version is taken for absent.
"""


@pytest.mark.parametrize("one", REFUSING, ids=lambda one: one.name)
def test_a_later_version_is_refused(one: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    module, name = one.constant.split(":")
    present = getattr(importlib.import_module(module), name)
    later = bytes([present[0] + 1]) if isinstance(present, bytes) else present + 1
    while any(
        other.constant.startswith(f"{module}:") and other.version == later for other in FORMATS
    ):
        later += 1  # that is another format: an encrypted record
    assert one.error is not None
    for sample in one.samples:
        with monkeypatch.context() as patch:
            patch.setattr(f"{module}.{name}", later)
            data = sample.encode(sample.value)
        with pytest.raises(one.newer or one.error, match=r"version|format"):
            sample.decode(data)


def version_constants() -> dict[str, int]:
    """Everything that the product calls a version: ``module:NAME``, and its value."""
    found: dict[str, int] = {}
    for path in python_files("logservice", "client"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        module = ".".join(parts[1:] if parts[0] == "client" else parts)
        if module in NO_FORMAT:
            continue
        for statement in ast.parse(path.read_text()).body:
            targets: list[ast.expr] = []
            if isinstance(statement, ast.Assign):
                targets = statement.targets
            elif isinstance(statement, ast.AnnAssign):
                targets = [statement.target]
            for target in targets:
                name = target.id if isinstance(target, ast.Name) else ""
                if re.search(r"(^|_)(VERSION|PROTOCOL)$", name):
                    value = getattr(importlib.import_module(module), name)
                    if isinstance(value, int | bytes):
                        number = value[0] if isinstance(value, bytes) else value
                        found[f"{module}:{name}"] = number
    return found


def test_every_version_in_the_product_has_its_format() -> None:
    assert {one.constant: one.version for one in FORMATS if one.constant} == version_constants()


def test_every_document_of_a_format_has_a_golden_file() -> None:
    described = {one.document for one in FORMATS}
    documents = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "docs" / "formats").glob("*.md")
        if path.name != "README.md"
    }
    assert documents <= described, "a document of a format that no golden file holds"
    assert all((ROOT / one).exists() for one in described)


def test_the_list_of_formats_is_complete() -> None:
    """docs/formats/README.md has one row per format, with its present version."""
    text = (ROOT / "docs" / "formats" / "README.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)` \| ([0-9]+) \| [^0-9]", text, re.MULTILINE)
    assert {name: int(version) for name, version in rows} == {
        one.name: one.version for one in FORMATS
    }


def test_the_list_of_what_changes_with_the_cluster_version_is_complete() -> None:
    text = (ROOT / "docs" / "formats" / "README.md").read_text()
    section = text.split("\n## Cluster versions\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([a-z-]+)` \| ([0-9]+) \| ([0-9]+) \|$", section, re.MULTILINE)
    assert {name: {1: int(first), 2: int(second)} for name, first, second in rows} == dict(
        versions.WRITTEN
    )


def test_golden_files_belong_to_formats() -> None:
    assert {name for name, _, _ in golden_files()} == set(BY_NAME)
