"""Writes the tables of docs/protocol.md from the code: RPCs, errors, gaps, limits.

    python -m tools.list_protocol            prints what they should be
    python -m tools.list_protocol --write    puts them into the page

The page is for people who write a client in another language and cannot import ours. The tables are
generated, because a table that is written twice is wrong one day. The docstring of an error's class
says once what the error means and which metadata it has.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any

from logservice_wire import bounds as wire
from logservice_wire.errors import error_table
from logservice_wire.roles import Role
from logservice_wire.rpcs import RPCS, Rpc
from logservice_wire.status import status_code_number
from logservice_wire.v1 import log_pb2

from logservice import bounds

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "protocol.md"
PROTO = ROOT / "proto" / "logservice_wire" / "v1" / "log.proto"

_KIB = 1024
_MIB = 1024 * _KIB

LIMITS: tuple[tuple[str, float, str, str], ...] = (
    ("a block with its header", wire.BLOCK_BYTES_MAX, "bytes", "hard"),
    ("records of a block", wire.BLOCK_RECORDS_MAX, "", "hard"),
    ("columns of a wide block, opened", wire.BLOCK_PLAIN_BYTES_MAX, "bytes", "hard"),
    ("one record", wire.RECORD_BYTES_MAX, "bytes", "hard"),
    ("unanswered sequences of a session", wire.SESSION_WINDOW, "", "hard"),
    ("names of holds, writers' holders, shards", wire.NAME_BYTES_MAX, "bytes", "hard"),
    ("timestamps of one call", wire.TIMESTAMPS_PER_CALL_MAX, "", "hard"),
    ("sessions of a shard", bounds.SESSIONS_MAX, "", "hard"),
    ("holds of a shard", bounds.HOLDS_MAX, "", "hard"),
    ("a request with blocks", bounds.REQUEST_BYTES_MAX, "bytes", "soft"),
    ("any other request", bounds.SMALL_REQUEST_BYTES_MAX, "bytes", "soft"),
    (
        "fields of one AppendStream message: blocks and `open`",
        bounds.STREAM_MESSAGE_FIELDS_MAX,
        "",
        "soft",
    ),
    ("headers of a call", bounds.METADATA_BYTES_MAX, "bytes", "soft"),
    ("an answer that your library has to accept", bounds.GRPC_MESSAGE_BYTES_MAX, "bytes", "soft"),
    ("`max_bytes` of Read, when 0 is given", bounds.READ_BYTES_DEFAULT, "bytes", "soft"),
    ("`max_bytes` of Read, cut to", bounds.READ_BYTES_MAX, "bytes", "soft"),
    ("deadline of a call that names none", bounds.RPC_TIMEOUT_DEFAULT_S, "s", "soft"),
    ("deadlines are cut to", bounds.RPC_TIMEOUT_MAX_S, "s", "soft"),
    ("until the first message of a stream", bounds.STREAM_OPEN_TIMEOUT_S, "s", "soft"),
    ("unary calls of one identity under way", bounds.IDENTITY_RPCS_MAX, "", "soft"),
    ("streams of one identity", bounds.IDENTITY_STREAMS_MAX, "", "soft"),
    ("unread answers of one identity", bounds.IDENTITY_ANSWER_BYTES_MAX, "bytes", "soft"),
    ("connections of one identity", bounds.IDENTITY_CONNECTIONS_MAX, "", "soft"),
    ("calls of one connection", bounds.CONNECTION_CALLS_MAX, "", "soft"),
    ("until SETTINGS are acknowledged", bounds.SETTINGS_TIMEOUT_S, "s", "soft"),
)
"""The limits that a client meets: words, value, unit, and whether all clusters have it (hard)."""


def rpcs() -> str:
    """The table of RPCs: which role the caller needs, and what a lost answer means."""
    rows = [
        "| service | RPC | role | over | changes something | may be sent again |",
        "|" + "---|" * 6,
    ]
    for rpc in RPCS.values():
        service = rpc.path.split("/")[1].rpartition(".")[2]
        again = "yes" if rpc.idempotent else "no"
        rows.append(
            f"| {service} | `{rpc.name}` | {_roles(rpc)} | {_scope(rpc)} |"
            f" {'yes' if rpc.mutates else 'no'} | {again} |"
        )
    return "\n".join(rows)


def _roles(rpc: Rpc[Any, Any]) -> str:
    roles = (
        "any"
        if rpc.roles == frozenset(Role)
        else " or ".join(f"`{role}`" for role in sorted(rpc.roles))
    )
    if rpc.readers:
        roles += "; of a hold named `reader:...` also hold"
    if rpc.each_as is not None:
        roles += f"; over each shard of `{rpc.each}` what `{rpc.each_as.name}` needs"
    return roles + ("; `admin` to override" if rpc.override else "")


def _scope(rpc: Rpc[Any, Any]) -> str:
    if not rpc.shard:
        return "the cluster"
    return "the shard or the cluster" if rpc.cluster_too else "the shard"


def errors() -> str:
    """The table of reasons of errors."""
    rows = ["| reason | gRPC code | retryable | outcome | meaning | metadata |", "|" + "---|" * 6]
    for reason, made in error_table().items():
        meaning, keys = _parts(inspect.cleandoc(made.__doc__ or "").replace("\n", " "))
        code = f"`{made.status}` ({status_code_number(made())})"
        again = "yes" if made.retryable else "no"
        rows.append(
            f"| `{reason.value}` | {code} | {again} | {made.outcome.value} | {meaning} | {keys} |"
        )
    return "\n".join(rows)


def _parts(text: str) -> tuple[str, str]:
    """The parts of a docstring before and behind ``metadata:``."""
    meaning, _, keys = re.sub(r"\s+", " ", text).partition("metadata:")
    return meaning.strip(" ;.") + ".", keys.strip(" .") or "-"


def gaps() -> str:
    """The table of reasons of gaps, with their comments in the proto."""
    comments = dict(re.findall(r"^ +(GAP_REASON_\w+) = \d+; +// (.*)$", PROTO.read_text(), re.M))
    rows = ["| number | name | |", "|---|---|---|"]
    for name, number in log_pb2.GapReason.items():
        if number:
            rows.append(f"| {number} | `{name}` | {comments.get(name, '')} |")
    return "\n".join(rows)


def limits() -> str:
    """The table of limits."""
    rows = ["| what | at most | |", "|---|---|---|"]
    rows += [f"| {what} | {_value(value, unit)} | {kind} |" for what, value, unit, kind in LIMITS]
    return "\n".join(rows)


def _value(value: float, unit: str) -> str:
    if unit == "bytes" and value % _MIB == 0:
        return f"{value // _MIB:.0f} MiB"
    if unit == "bytes" and value % _KIB == 0:
        return f"{value // _KIB:.0f} KiB"
    number = f"{value:,.0f}".replace(",", " ")
    return f"{number} {unit}".strip()


def written(page: str) -> str:
    """The page with its tables as they should be."""
    for name, table in (
        ("rpcs", rpcs()),
        ("errors", errors()),
        ("gaps", gaps()),
        ("limits", limits()),
    ):
        mark = f"<!-- {name}: written by make protocol -->"
        before, _, rest = page.partition(mark)
        _, end, after = rest.partition(f"<!-- /{name} -->")
        if not end:
            raise ValueError(f"the page has no place for {name}")
        page = f"{before}{mark}\n\n{table}\n\n{end}{after}"
    return page


def main(arguments: list[str]) -> int:
    """Write, or print."""
    page = written(PAGE.read_text())
    if arguments == ["--write"]:
        PAGE.write_text(page)
    else:
        print(page)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
