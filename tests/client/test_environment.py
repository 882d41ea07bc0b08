"""What a program is told of its client, and a client of its environment."""

from __future__ import annotations

from pathlib import Path

import logservice_client
import pytest
from logservice_client import LogClient, SyncLogClient, TlsFiles, Truncated
from logservice_client.environment import from_environment
from logservice_wire import errors
from logservice_wire.errors import InvalidArgument, LogServiceError

from tests.client.running_fake import running_fake
from tests.papers import TestAuthority


def test_the_variables_are_those_of_logctl(tmp_path: Path) -> None:
    papers = TestAuthority("ours").issue("spiffe://c/client/me")
    papers.write(tmp_path / "me")
    assert from_environment({"LOGSERVICE_ENDPOINTS": "a:1,b:2"}) == ("a:1,b:2", None)
    variables = {
        "LOGSERVICE_ENDPOINTS": "a:1",
        "LOGSERVICE_TLS_CERT": str(tmp_path / "me.pem"),
        "LOGSERVICE_TLS_KEY": str(tmp_path / "me.key"),
        "LOGSERVICE_TLS_SERVER_NAME": "store",
    }
    _, tls = from_environment(variables)
    assert isinstance(tls, TlsFiles)
    assert (tls.current().key, tls.current().server_name) == (papers.key, "store")
    assert papers.key.decode() not in repr(tls) + repr(tls.current())
    for wrong in ({}, {"LOGSERVICE_ENDPOINTS": "a:1", "LOGSERVICE_TLS_CA": "/none"}):
        with pytest.raises(InvalidArgument):
            from_environment(wrong)


def test_a_client_says_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with running_fake(stores=1) as cluster:
        monkeypatch.setenv("LOGSERVICE_ENDPOINTS", cluster.endpoints[0])
        with SyncLogClient.from_env() as client:
            log = client.shard(1)
            assert log.append(b"a") == 1
            assert repr(log) == "<Sync <Shard 1, writer epoch 0>>"
            assert cluster.endpoints[0] in repr(client)
            assert "Hakeeper" in repr(client.hakeeper)
        assert "closed" in repr(client)


async def test_the_asyncio_client_takes_them_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGSERVICE_ENDPOINTS", "127.0.0.1:1")
    async with LogClient.from_env() as client:
        assert "127.0.0.1:1" in repr(client)


def test_every_error_is_exported_with_typed_details() -> None:
    classes = [*errors.error_table().values(), LogServiceError, errors.ClosedUnderWay]
    for one in classes:
        assert getattr(logservice_client, one.__name__) is one
    assert Truncated("gone", first_lsn=7).first_lsn == 7
    assert errors.Fenced(epoch=3, holder="db-2").holder == "db-2"
    details = {
        name
        for one in classes
        for name, value in vars(one).items()
        if isinstance(value, property) and isinstance(getattr(one(), name), int | str)
    }
    assert {"first_lsn", "next_lsn", "epoch", "fork_lsn", "end_lsn", "retry_after_ms"} <= details
