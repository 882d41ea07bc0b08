"""One set of ports: an address that people copy from a page, an example or a help text has the port
of `deploy/store.example.toml`.
"""

from __future__ import annotations

import re
import subprocess
import tomllib

from tests.tidy.source_tree import ROOT

WHERE = ("README.md", "SECURITY.md", "THREAT_MODEL.md", "docs", "deploy", "examples")
SOURCES = ("client", "logservice")
"""Of these only docstrings and help texts have addresses."""
NOT_TEXT = (".svg", ".png", ".sum", ".json")
OF_OTHERS = {"10.0.0.7:6001": "where a service of the database listens"}
STORES = 3
"""Of a cluster on one machine: each has the next port."""
TOKENS = 20
"""`tokens.port_offset`."""

_ADDRESS = re.compile(
    r"(?<![\w.@/$])((?:[A-Za-z][\w.$()-]+|\d+\.\d+\.\d+\.\d+|\[[0-9a-f:]+\]):(\d{4,5}))\b"
)


def known_ports() -> set[int]:
    example = tomllib.loads((ROOT / "deploy" / "store.example.toml").read_text())
    addresses = (
        example["listen"]["client"],
        example["listen"]["peer"],
        example["admin"]["listen"],
    )
    first = [int(address.rpartition(":")[2]) for address in addresses]
    return {port + more + of for port in first for more in range(STORES) for of in (0, TOKENS)}


def strange(text: str, known: set[int]) -> list[str]:
    return [
        address
        for address, port in _ADDRESS.findall(text)
        if int(port) not in known and address not in OF_OTHERS
    ]


def test_every_address_has_a_port_of_the_example() -> None:
    listed = subprocess.run(
        ["git", "ls-files", *WHERE, *SOURCES], cwd=ROOT, capture_output=True, text=True, check=True
    )
    known = known_ports()
    found = {
        name: strange((ROOT / name).read_text("utf-8"), known)
        for name in listed.stdout.splitlines()
        if not name.endswith(NOT_TEXT) and (ROOT / name).exists()
    }
    assert {name: addresses for name, addresses in found.items() if addresses} == {}


def test_the_rule_finds_another_port() -> None:
    text = "logctl --endpoints 10.0.0.1:7401,store-2:9700 and [::1]:7001, at 12:30:1999"
    assert strange(text, known_ports()) == ["store-2:9700", "[::1]:7001"]
