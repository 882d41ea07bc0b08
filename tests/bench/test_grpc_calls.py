"""What an empty call costs is measured on every shape, with either server, and ends its server."""

from __future__ import annotations

import multiprocessing

import pytest

from bench.parts.grpc_calls import SHAPES, measured


@pytest.mark.parametrize("plain", [False, True], ids=["as a store", "plain"])
async def test_every_shape_is_measured(plain: bool) -> None:
    found = await measured(0.5, 1, plain=plain)
    assert list(found) == list(SHAPES)
    for costs in found.values():
        assert len(costs) == 1
        assert all(cost.rate > 0 for cost in costs)
    assert multiprocessing.active_children() == []
