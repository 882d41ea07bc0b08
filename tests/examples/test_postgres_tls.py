"""TLS and SCRAM with a real PostgreSQL, and somebody in the middle.

They need Debian's postgresql: `make test-postgres`, which installs it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shutil
import ssl
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from examples.postgres.address import Address
from examples.postgres.certificates import Authority, give_tls
from examples.postgres.protocol import AuthenticationRefused, ServerError
from examples.postgres.replication import Connection
from examples.postgres.server import Postgres
from examples.postgres.tls import REQUEST, Mode
from logservice.cli.processes.local_cluster import free_ports

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(
        not os.environ.get("LOGSERVICE_REQUIRE_POSTGRES"),
        reason="they need a PostgreSQL: `make test-postgres`",
    ),
]

PASSWORD = "pass, w\u00f6rd="
RULES = [
    "hostssl all scram 127.0.0.1/32 scram-sha-256",
    "hostssl replication scram 127.0.0.1/32 scram-sha-256",
    "hostnossl all scram 127.0.0.1/32 scram-sha-256",
    "hostssl all clear 127.0.0.1/32 password",
    "hostssl all digest 127.0.0.1/32 md5",
    "hostssl all trusted 127.0.0.1/32 trust",
]
INVALID_PASSWORD = "28P01"
INVALID_AUTHORIZATION = "28000"


@dataclasses.dataclass
class Place:
    server: Postgres
    authority: Authority
    folder: Path

    def address(self, user: str = "scram") -> Address:
        return Address("localhost", self.server.port, user, PASSWORD, ca=self.authority.file)


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    folder.chmod(0o755)
    server = Postgres(folder / "a", free_ports(1)[0])
    authority = Authority(folder / "ca")
    try:
        server.create(synchronous_standby_names="''")
        give_tls(server, authority, RULES)
        server.start()
        server.wait()
        server.query("SET password_encryption = md5; CREATE ROLE digest LOGIN PASSWORD 'secret'")
        for user in ("scram", "clear", "trusted"):
            server.query(f"CREATE ROLE {user} LOGIN REPLICATION PASSWORD '{PASSWORD}'")
        yield Place(server, authority, folder)
    finally:
        server.kill()
        shutil.rmtree(folder)


async def said(address: Address, question: str) -> list[bytes | None]:
    connection = await Connection.connect(address, {"database": "postgres"})
    try:
        (row,) = (await connection.query(question)).rows
        return row
    finally:
        connection.close()
        await asyncio.sleep(0.01)


OWN = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"


async def test_a_verified_server_and_a_password(place: Place) -> None:
    assert await said(place.address(), OWN) == [b"t"]
    replication = await Connection.connect(place.address(), {"replication": "true"})
    assert (await replication.identify()).timeline == 1
    replication.close()
    await asyncio.sleep(0.01)


async def test_a_server_that_nobody_verified_is_bound_by_the_password(place: Place) -> None:
    unverified = dataclasses.replace(place.address(), mode=Mode.REQUIRE, ca=None)
    assert await said(unverified, OWN) == [b"t"]


async def test_clear_text_is_spoken_when_it_is_asked_for(place: Place) -> None:
    clear = dataclasses.replace(place.address(), mode=Mode.DISABLE)
    assert await said(clear, OWN) == [b"f"]


async def test_a_wrong_password(place: Place) -> None:
    for mode in Mode:
        with pytest.raises(ServerError) as caught:
            wrong = dataclasses.replace(place.address(), password="guessed", mode=mode)
            await said(wrong, "SELECT 1")
        assert caught.value.code == INVALID_PASSWORD


async def test_another_ca(place: Place) -> None:
    another = Authority(place.folder / "another", "another CA")
    with pytest.raises(AuthenticationRefused, match="certificate verify failed"):
        await said(dataclasses.replace(place.address(), ca=another.file), "SELECT 1")


async def test_another_name(place: Place) -> None:
    with pytest.raises(AuthenticationRefused, match=r"IP address mismatch.*127\.0\.0\.1"):
        await said(dataclasses.replace(place.address(), host="127.0.0.1"), "SELECT 1")


@pytest.mark.parametrize(
    ("user", "words"), [("clear", "clear text"), ("digest", "MD5"), ("trusted", "does not ask")]
)
async def test_a_server_that_asks_for_less(place: Place, user: str, words: str) -> None:
    with pytest.raises(AuthenticationRefused, match=words):
        await said(place.address(user), "SELECT 1")


async def test_without_a_password_to_a_server_that_trusts(place: Place) -> None:
    trusting = dataclasses.replace(place.address("trusted"), password="")
    assert await said(trusting, OWN) == [b"t"]


def test_a_server_without_tls(place: Place) -> None:
    server = Postgres(place.folder / "b", free_ports(1)[0])
    try:
        server.create(synchronous_standby_names="''", listen_addresses="'127.0.0.1'")
        server.start()
        server.wait()
        plain = dataclasses.replace(place.address(), port=server.port, password="")
        for mode in (Mode.REQUIRE, Mode.VERIFY_FULL):
            with pytest.raises(AuthenticationRefused, match="it has no TLS"):
                asyncio.run(said(dataclasses.replace(plain, mode=mode), "SELECT 1"))
    finally:
        server.remove()


@asynccontextmanager
async def in_the_middle(place: Place) -> AsyncIterator[int]:
    """Somebody with another certificate, who passes on what both say; his port."""
    his = Authority(place.folder / "his", "his own CA")
    his.certify(place.folder / "his/crt", place.folder / "his/key")
    towards_client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    towards_client.load_cert_chain(place.folder / "his/crt", place.folder / "his/key")
    towards_server = ssl.create_default_context(cafile=str(place.authority.file))
    served = asyncio.Event()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(4096):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(len(REQUEST)) == REQUEST
        writer.write(b"S")
        await writer.start_tls(towards_client)
        there, here = await asyncio.open_connection("127.0.0.1", place.server.port)
        here.write(REQUEST)
        assert await there.readexactly(1) == b"S"
        await here.start_tls(towards_server, server_hostname="localhost")
        await asyncio.gather(pass_on(reader, here), pass_on(there, writer), return_exceptions=True)
        here.transport.abort()
        writer.transport.abort()
        served.set()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()
        await served.wait()
        await asyncio.sleep(0.01)


async def test_somebody_in_the_middle_cannot_pass_the_password_on(place: Place) -> None:
    """The server finds that the exchange names another certificate."""
    async with in_the_middle(place) as port:
        through = dataclasses.replace(place.address(), mode=Mode.REQUIRE, ca=None, port=port)
        with pytest.raises(ServerError, match="channel binding") as caught:
            await said(through, "SELECT 1")
    assert caught.value.code == INVALID_AUTHORIZATION
