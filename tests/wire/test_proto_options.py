"""The protocol files are for every language: what other generators than Python's ask for."""

from __future__ import annotations

from types import ModuleType

import pytest
from logservice_wire.v1 import admin_pb2, hakeeper_pb2, log_pb2


@pytest.mark.parametrize("module", [admin_pb2, hakeeper_pb2, log_pb2])
def test_every_file_names_one_go_package(module: ModuleType) -> None:
    """Without it protoc-gen-go refuses the file."""
    options = module.DESCRIPTOR.GetOptions()
    assert options.go_package == "logservice.internal/wire/v1;logservicev1"
