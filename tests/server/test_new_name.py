"""What a log may be called, judged by the store that is asked."""

from __future__ import annotations

import pytest
from logservice_wire.errors import InvalidArgument

from logservice.server.services.new_name import new_name


@pytest.mark.parametrize(
    "name", ["", "orders", "eu/shop-orders_2.wal", "tn:1@a=b+c", "größe", "订单", "log-1"]
)
def test_names(name: str) -> None:
    assert new_name(name) == name


@pytest.mark.parametrize(
    "name", ["bad name!", "a b", "-x", "a,b", "wal-*", "a'b", "a\tb", "$x", "a\u00a0b", "#1"]
)
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(InvalidArgument, match="a log is not called") as refused:
        new_name(name)
    assert refused.value.metadata["field"] == "name"
