"""The clients that come with this service show a token: the Python client, and logctl."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from pathlib import Path

import pytest
from click.testing import CliRunner
from logservice_client import LogClient, TlsFiles
from logservice_wire.errors import HandshakeFailed, Unauthenticated

from logservice.cli.logctl import logctl
from tests.server.secured import CLIENTS
from tests.server.tokens.issuer import token
from tests.server.tokens.test_store_tokens import (
    BACKEND,
    grant,
    store_with_tokens,
    token_port,
)


def shown(directory: Path, text: str) -> TlsFiles:
    (directory / "ca.pem").write_bytes(CLIENTS.pem)
    renew(directory / "token", text)
    return TlsFiles(ca=str(directory / "ca.pem"), token_file=str(directory / "token"))


def renew(path: Path, text: str) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.rename(path)


async def test_a_client_appends_and_follows_while_its_token_is_renewed(tmp_path: Path) -> None:
    """The first token ends while a stream of appends and a follow are under way; both go on."""
    async with store_with_tokens(tmp_path) as store:
        await grant(store, BACKEND, "read", "append")
        ends_s = int(time.time()) + 5
        tls = shown(tmp_path, token(exp=ends_s))
        async with LogClient(token_port(store), tls=tls) as client, asyncio.timeout(120):
            log = client.shard(1)
            items = log.follow(1)
            async with aclosing(items):
                count = 0
                while count < 10 or time.time() < ends_s + 1:
                    if count == 10:
                        renew(tmp_path / "token", token())
                    lsn = await log.append(b"%d" % count)
                    got = await anext(items)
                    assert got.next_lsn == lsn + 1
                    count += 1
                    await asyncio.sleep(0.05)
            assert client.replica_addresses(1) == (token_port(store),)


async def test_a_client_whose_token_is_not_accepted_is_told(tmp_path: Path) -> None:
    async with store_with_tokens(tmp_path) as store:
        tls = shown(tmp_path, token(aud="other"))
        async with LogClient(token_port(store), tls=tls) as client:
            with pytest.raises(Unauthenticated, match="udience"):
                await client.shard(1).append(b"x")
        async with LogClient(store.client_address, tls=tls) as client:
            with pytest.raises(HandshakeFailed, match="token go to another port"):
                await client.shard(1).append(b"x")


async def test_logctl_shows_a_token(tmp_path: Path) -> None:
    async with store_with_tokens(tmp_path) as store:
        await grant(store, BACKEND, "admin", "read", "append")
        shown(tmp_path, token())
        connected = ["--endpoints", token_port(store), "--tls-ca", str(tmp_path / "ca.pem")]

        def run(*arguments: str, **variables: str) -> str:
            result = CliRunner().invoke(logctl, [*connected, *arguments], env=variables)
            assert result.exit_code == 0, result.output
            return result.output

        by_option = ["--token-file", str(tmp_path / "token")]
        await asyncio.to_thread(run, *by_option, "append", "1", "hello")
        read = await asyncio.to_thread(
            run, "read", "1", LOGSERVICE_TOKEN_FILE=str(tmp_path / "token")
        )
        assert "hello" in read
        stores = await asyncio.to_thread(run, *by_option, "--timeout", "30s", "stores")
        assert "s1" in stores
