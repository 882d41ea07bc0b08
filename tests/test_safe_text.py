"""What a terminal would obey is spelled out, and may be in no name."""

from __future__ import annotations

import json
import sys
import unicodedata
from typing import Any

import msgspec
import pytest
from logservice_wire.errors import InvalidArgument
from rich.console import Console

from logservice.access import check_grantee
from logservice.cli.ctl.top_view import screen
from logservice.cli.shell import exit_codes, output
from logservice.hakeeper.commands.wire_types import AccessText, Labels, Name, Store, Text
from logservice.ids import StoreId
from logservice.owner import Author
from logservice.rsm import commands
from logservice.safe_text import safe_lines, safe_text, unsafe
from logservice.server.monitor.cluster.rows import (
    ClusterReport,
    ClusterRow,
    ReplicaRow,
    ShardRow,
    StoreEvent,
    StoreRow,
)
from tests.owners import APP, NONCE, STORE

HOSTILE = [
    "\x1b[2J",
    "\x1b]0;title\x07",
    "\x9b31m",
    "a\rb",
    "a\nb",
    "a\x00b",
    "a\x7f",
    "\u202eevil",
    "a\u2066b",
    "a\u200bb",
    "a\u2028b",
    "\ufeffa",
    "\U000e0041",
    "a\u061cb",
    "a\u00adb",
]
HARMLESS = ["wal", "a b", "Bücher", "日志", "журнал", "naïve", "a/b:c", "😀"]


def test_every_control_and_format_character_is_unsafe() -> None:
    shown = [
        hex(code)
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(chr(code)) in ("Cc", "Zl", "Zp", "Cs") and not unsafe(chr(code))
    ]
    assert shown == []
    # Of the format characters, those of scripts (Arabic signs, hieroglyphs) draw something.
    bidi = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI", "BN"}
    for code in range(sys.maxunicode + 1):
        one = chr(code)
        if unicodedata.bidirectional(one) in bidi and unicodedata.category(one) == "Cf":
            assert unsafe(one) or code >= 0x1BCA0, hex(code)


@pytest.mark.parametrize("text", HOSTILE)
def test_it_is_spelled_out(text: str) -> None:
    assert unsafe(text)
    told = safe_text(text)
    assert not unsafe(told)
    assert "\\" in told
    assert safe_text(told) == told
    assert safe_lines("a\n\tb") == "a\n\tb"


@pytest.mark.parametrize("text", HARMLESS)
def test_letters_of_all_scripts_stay(text: str) -> None:
    assert safe_text(text) == text
    assert not unsafe(text)


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_holds_it(name: str) -> None:
    for command in (
        commands.SetHold(APP, False, lsn=1, name=name),  # type: ignore[arg-type]
        commands.ReleaseHold(APP, False, name),
        commands.AcquireWriter(APP, False, 0, False, name),
        commands.OpenSession(Author(name, STORE), NONCE),
        commands.OpenSession(Author("app", StoreId(name)), NONCE),
    ):
        with pytest.raises((commands.CommandMalformed, InvalidArgument)) as caught:
            commands.decode(commands.encode(command))
        error = getattr(caught.value, "error", caught.value)
        assert isinstance(error, InvalidArgument)
    for kind in (Text, Name, Store, AccessText):
        with pytest.raises(msgspec.ValidationError):
            msgspec.msgpack.decode(msgspec.msgpack.encode(name), type=kind)
    for labels in ({name: "x"}, {"x": name}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.msgpack.decode(msgspec.msgpack.encode(labels), type=Labels)
    with pytest.raises(InvalidArgument):
        check_grantee("spiffe://d/cluster/c/client/a", f"name/{name}")


@pytest.mark.parametrize("name", HARMLESS)
def test_other_names_are_taken(name: str) -> None:
    command = commands.SetHold(APP, False, lsn=1, name=name)  # type: ignore[arg-type]
    assert commands.decode(commands.encode(command)) == command
    msgspec.msgpack.decode(msgspec.msgpack.encode({name: name}), type=Labels)


@pytest.mark.parametrize("text", [*HOSTILE, "[bold red]x[/]", "[link=http://evil]x[/link]"])
def test_nothing_of_it_reaches_a_terminal(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    output.show_rows("table", [{"name": text, text: 1}], text)
    output.show_rows("table", [], text)
    output.show_fields("table", {"name": text, "list": [text], "map": {text: text}})
    output.say(text.replace("\n", ""), err=True)

    def fail() -> None:
        raise InvalidArgument(text, field=text)

    exit_codes._outcome(fail, "logctl", "table")
    shown = capsys.readouterr()
    for line in (shown.out + shown.err).split("\n"):
        assert not unsafe(line), line
    if text.startswith("["):
        assert text in shown.out, "no markup"


@pytest.mark.parametrize("text", HOSTILE)
def test_json_is_exact(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    output.show_rows("json", [{"name": text}])
    output.show_fields("json", {"name": text})
    rows, fields = capsys.readouterr().out.splitlines()
    assert not unsafe(rows + fields)
    assert json.loads(rows) == [{"name": text}]
    assert json.loads(fields) == {"name": text}


def test_records() -> None:
    record = b"\x1b[2Jrecord\xff"

    def line(**how: bool) -> bytes:
        shown = {"raw": False, "terminal": False, **how}
        return output.record_line(7, record, form="table", **shown)

    assert line() == b"7\t" + record
    assert line(raw=True, terminal=True) == record
    assert line(terminal=True) == b"7\t\\x1b[2Jrecord\\xff"


def test_only_one_file_prints() -> None:
    """INV-CLI-1: what prints is in `output`, and where a shell's script is made."""
    from pathlib import Path

    folder = Path(output.__file__).parent
    printing = {
        path.name
        for path in folder.glob("*.py")
        if any(word in path.read_text() for word in ("click.echo(", "click.secho(", 'print("'))
    }
    assert printing == {"output.py", "completion.py"}


def test_top_draws_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    """Every text that a store reports, whatever field it stands in."""
    name = "[bold]x[/]\x1b[2J"

    def filled(kind: type[msgspec.Struct], **known: object) -> Any:
        found = dict(known)
        for one in msgspec.structs.fields(kind):
            if one.name not in found and one.type in (str, "str"):
                found[one.name] = name
            elif one.name not in found and one.required:
                found[one.name] = 0
        return kind(**found)

    shard = filled(ShardRow, replicas=(filled(ReplicaRow),))
    head = filled(ClusterRow, flags=(name,), events=(filled(StoreEvent),))
    report = ClusterReport(cluster=head, stores=(filled(StoreRow),), shards=(shard,), operators=())
    Console(width=200).print(screen(report, None, "state", 40, 200))
    shown = capsys.readouterr().out
    assert not any(unsafe(line) for line in shown.split("\n"))
    assert shown.count("[bold]x[/]\\x1b[2J") >= 8
