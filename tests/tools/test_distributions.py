"""What the two wheels say about themselves, as pip reads it. They are built without a network."""

from __future__ import annotations

import re
from email.message import Message
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest
from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement

from tools.own_environment import ROOT

GENERATED = ROOT / "client" / "logservice_wire" / "v1" / "log_pb2.py"
SERVER, CLIENT = ROOT, ROOT / "client"


def wheel(root: Path, folder: Path) -> ZipFile:
    (built,) = WheelBuilder(str(root)).build(directory=str(folder), versions=["standard"])
    return ZipFile(built)


def metadata(root: Path, folder: Path) -> Message:
    with wheel(root, folder) as opened:
        (name,) = (name for name in opened.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(opened.read(name).decode())


def required(said: Message) -> dict[str, Requirement]:
    """What is needed without any extra, by name."""
    all_of_them = map(Requirement, said.get_all("Requires-Dist", []))
    return {one.name: one for one in all_of_them if "extra" not in str(one.marker)}


def test_the_client_needs_grpc_and_protobuf_and_nothing_of_the_server(tmp_path: Path) -> None:
    asked = required(metadata(CLIENT, tmp_path))
    assert set(asked) == {"grpcio", "googleapis-common-protos", "protobuf"}


@pytest.mark.parametrize("root", [SERVER, CLIENT], ids=["server", "client"])
def test_the_bounds_of_protobuf_are_those_of_the_generated_code(root: Path, tmp_path: Path) -> None:
    """Code runs on the protobuf that its generator is of, and on the next major version."""
    checked = re.search(
        r"ValidateProtobufRuntimeVersion\(\s*_\S+,\s*(\d+),\s*(\d+),\s*(\d+),",
        GENERATED.read_text(),
    )
    assert checked
    major, minor, patch = map(int, checked.groups())
    asked = required(metadata(root, tmp_path))["protobuf"]
    assert {str(one) for one in asked.specifier} == {
        f">={major}.{minor}.{patch}",
        f"<{major + 2}",
    }


def test_the_server_carries_the_page_and_its_runbooks(tmp_path: Path) -> None:
    ui = "logservice/server/monitor/ui"
    with wheel(SERVER, tmp_path) as opened:
        carried = {name for name in opened.namelist() if name.startswith(f"{ui}/")}
    pages = {f"{ui}/runbooks/{page.name}" for page in (ROOT / "docs" / "operations").glob("*.md")}
    files = {f"{ui}/{file.name}" for file in (ROOT / ui).iterdir() if file.is_file()}
    assert len(pages) > 40
    assert carried == pages | files


def test_the_server_takes_the_client_that_lies_beside_it(tmp_path: Path) -> None:
    """So `pip install .` needs no index for it, where the name may be anybody's."""
    assert required(metadata(SERVER, tmp_path))["logservice-client"].url == CLIENT.as_uri()


def test_a_wheel_for_another_machine_names_no_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGSERVICE_WHEEL_CLIENT", "")
    said = metadata(SERVER, tmp_path)
    assert required(said)["logservice-client"].url is None
    assert [line for line in said.get_all("Requires-Dist", []) if "@" in line] == []


@pytest.mark.parametrize("root", [SERVER, CLIENT], ids=["server", "client"])
def test_types_are_shipped_and_tests_are_not(root: Path, tmp_path: Path) -> None:
    with wheel(root, tmp_path) as opened:
        names = opened.namelist()
    packages = {name.partition("/")[0] for name in names if name.endswith("/__init__.py")}
    assert packages == (
        {"logservice"}
        if root == SERVER
        else {
            "logservice_wire",
            "logservice_client",
            "logservice_delta",
            "pyspark_logservice",
        }
    )
    assert {f"{package}/py.typed" for package in packages} <= set(names)


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_one_leveldb_for_each_python(version: str, tmp_path: Path) -> None:
    asked = required(metadata(SERVER, tmp_path))
    fits = [
        name
        for name in ("plyvel", "plyvel-next")
        if (marker := asked[name].marker) and marker.evaluate({"python_version": version})
    ]
    assert fits == ["plyvel" if version in ("3.11", "3.12") else "plyvel-next"]
