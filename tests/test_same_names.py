"""One description becomes another without a list of fields in between."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from logservice_wire.v1 import log_pb2
from msgspec import Struct

from logservice.same_names import copied

SOURCE = SimpleNamespace(
    first=1, second=2, third=3, first_lsn=4, applied_lsn=5, voters=3, healthy_voters=2
)


@dataclass
class Plain:
    first: int
    given: str
    second: int = 0


@dataclass(kw_only=True)
class Named:
    second: int
    given: str
    first: int = field(default=7)


class Row(Struct, array_like=True):
    third: int
    given: str
    first: int = 0


class One(Struct):
    first: int


def test_every_kind_of_form_takes_the_values_under_its_own_names() -> None:
    for _ in range(2):  # the second time with what the first one has prepared
        assert copied(Plain, SOURCE, given="g") == Plain(1, "g", 2)
        assert copied(Plain, SOURCE, second=9, given="g") == Plain(1, "g", 9)
        assert copied(Named, SOURCE, given="g") == Named(second=2, given="g", first=1)
        assert copied(Row, SOURCE, given="g") == Row(3, "g", 1)
        assert copied(One, SOURCE) == One(1)
        assert copied(One, SOURCE, first=8) == One(8)
    position = copied(
        log_pb2.LogPosition, SOURCE, leader_store="s", leader_address="", lineage=None
    )
    assert (position.first_lsn, position.applied_lsn, position.leader_store) == (4, 5, "s")


def test_a_value_that_nobody_has_is_an_error() -> None:
    with pytest.raises(AttributeError):
        copied(Plain, SOURCE)
    with pytest.raises(TypeError, match="other"):
        copied(Plain, SOURCE, given="g", other=1)
