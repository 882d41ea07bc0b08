"""docs/protocol.md says what the code does: people without our code rely on it."""

from __future__ import annotations

import re

import grpc
from logservice_client.failure import error_of, may_repeat
from logservice_wire.errors import error_table
from logservice_wire.v1 import hakeeper_pb2, log_pb2

from tools.list_protocol import PAGE, written

WORDS = {"true", "done", "unknown", "forcible"}
"""Values and keys of metadata that the page names, and that are no fields."""


def test_the_tables_are_those_of_the_code() -> None:
    page = PAGE.read_text()
    assert written(page) == page, "run `make protocol`"


def test_every_reason_says_what_it_means() -> None:
    for reason, made in error_table().items():
        (row,) = [line for line in PAGE.read_text().splitlines() if f"| `{reason.value}` |" in line]
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert len(cells) == 6
        assert len(cells[4]) > 10, made


def test_the_fields_and_rpcs_that_the_page_names_exist() -> None:
    """In the sections for which there is no table that is made from the code."""
    text = PAGE.read_text().partition("## What needs cluster")[2].partition("## Limits")[0]
    assert text.count("\n## ") == 4
    messages = [
        message
        for package in (hakeeper_pb2, log_pb2)
        for message in package.DESCRIPTOR.message_types_by_name.values()
    ]
    fields = {field.name for message in messages for field in message.fields}
    named = set(re.findall(r"`([a-z_]+)`", text))
    assert named - fields == WORDS
    rpcs = {
        method.name
        for package in (hakeeper_pb2, log_pb2)
        for service in package.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    assert set(re.findall(r"`([A-Z][a-z]\w+)`", text)) <= rpcs


class _Bare(grpc.RpcError):
    """A failure that gRPC itself reports."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        self._code, self._details = code, details

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details

    def trailing_metadata(self) -> None:
        return None


def test_bare_codes_are_treated_as_our_own_client_does() -> None:
    """The table of the page agrees, row by row, with `logservice_client.failure`."""
    section = PAGE.read_text().partition("**Without ErrorInfo**")[2].partition("## Where")[0]
    rows = re.findall(r"^\| (`[A-Z_]+`.*?) \| (.*?) \| (.*?) \|$", section, re.M)
    told: set[str] = set()
    for codes, asking, changing in rows:
        for name in re.findall(r"`([A-Z_]+)`", codes):
            words = re.search(r'"(.*)"', codes)
            failure = _Bare(grpc.StatusCode[name], words[1] if words else "why")
            error = error_of(failure, mutating=True)
            expected = changing.partition(",")[0].partition(";")[0].partition(":")[0]
            assert error.outcome.value.replace("_", " ") == expected.removesuffix(" outcome"), name
            again = asking.startswith("try again")
            seen = error_of(failure, mutating=False)
            assert may_repeat(seen, mutating=False, idempotent=True) == again, name
            told.add(name)
    assert told >= {code.name for code in grpc.StatusCode} - QUIET


QUIET = {"OK", "NOT_FOUND", "ALREADY_EXISTS", "FAILED_PRECONDITION", "OUT_OF_RANGE", "DATA_LOSS"}
"""The statuses that gRPC itself never answers."""


def test_methods_that_are_named_exist() -> None:
    modules = (log_pb2, hakeeper_pb2)
    services = [one for module in modules for one in module.DESCRIPTOR.services_by_name.values()]
    methods = {
        f"{service.name}.{method.name}" for service in services for method in service.methods
    }
    text = PAGE.read_text()
    leader_only = text.partition("gives something up (")[2].partition(", administration")[0]
    named = {f"Log.{name.strip()}" for name in leader_only.split(",")}
    named |= set(re.findall(r"`(HAKeeper\.\w+)`", text))
    assert len(named) == 8
    assert named <= methods
