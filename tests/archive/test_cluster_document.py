"""What an archive says of its cluster: written when it is news, read as hostile input."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from logservice_client import LogClient, Tls
from logservice_wire.errors import InvalidArgument

from logservice import bounds
from logservice.archive.cluster_document import Document, Grant, LogEntry, describe, newest, write
from logservice.archive.damage import ArchiveDamaged
from logservice.archive.folder import Folder
from logservice.archive.manifest import mark
from logservice.archive.restore_all import RestoreAll
from tests.client.fake_server import FakeCluster
from tests.papers import uri
from tests.server.secured import CLIENTS, OWNER, lay_out, secured

LOG = LogEntry(shard_id=3, name="wal", replicas=3, state="open", labels={"a": "b"}, weight=7)


def document(**more: Any) -> Document:
    given: dict[str, Any] = {
        "format": 1,
        "cluster_id": "c",
        "written_us": 5,
        "logs": (LOG,),
        "grants": (Grant("i", "cluster", ("read",)),),
    }
    return Document(**{**given, **more})


@pytest.fixture
def files(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest_asyncio.fixture
async def client() -> AsyncIterator[LogClient]:
    cluster = await FakeCluster.start()
    async with LogClient(cluster.endpoints) as one:
        yield one
    await cluster.stop()


def test_it_is_written_when_it_is_news(files: Folder) -> None:
    assert newest(files) is None
    assert write(files, document())
    assert not write(files, document(written_us=6))
    assert write(files, document(joining="by-verb"))
    found = newest(files)
    assert found == document(joining="by-verb")
    assert found.logs[0].policy().weight == 7
    assert write(files, document()), "back to what it was is news, too"


def test_so_many_are_kept(files: Folder, tmp_path: Path) -> None:
    for number in range(bounds.CLUSTER_DOCUMENTS_MAX + 5):
        assert write(files, document(default_replicas=number))
    names = sorted(one.name for one in (tmp_path / "cluster").iterdir())
    assert len(names) == bounds.CLUSTER_DOCUMENTS_MAX
    assert names[-1] == f"{bounds.CLUSTER_DOCUMENTS_MAX + 5:020d}.json"


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"{", ArchiveDamaged),
        (b'{"format": 1}', ArchiveDamaged),
        (b'{"format": 2, "cluster_id": "c", "written_us": 1, "logs": []}', InvalidArgument),
        (
            b'{"format": 1, "cluster_id": "c", "written_us": 1, "logs": ['
            b'{"shard_id": 1, "name": "a", "replicas": 3, "state": "open"},'
            b'{"shard_id": 1, "name": "b", "replicas": 3, "state": "open"}]}',
            ArchiveDamaged,
        ),
        (
            b'{"format": 1, "cluster_id": "c", "written_us": 1, "logs": ['
            b'{"shard_id": 0, "name": "a", "replicas": 3, "state": "open"}]}',
            ArchiveDamaged,
        ),
    ],
)
def test_what_is_none_is_refused(
    files: Folder, tmp_path: Path, content: bytes, error: type[Exception]
) -> None:
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / f"{1:020d}.json").write_bytes(content)
    with pytest.raises(error):
        newest(files)


def test_one_that_is_too_large_is_refused(files: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    write(files, document())
    monkeypatch.setattr(bounds, "CLUSTER_DOCUMENT_BYTES_MAX", 10)
    with pytest.raises(ArchiveDamaged, match="bytes"):
        newest(files)


@pytest.mark.parametrize("seed", range(60))
def test_fuzzed_documents_are_read_or_refused(files: Folder, tmp_path: Path, seed: int) -> None:
    write(files, document())
    path = tmp_path / "cluster" / f"{1:020d}.json"
    rng, data = random.Random(seed), bytearray(path.read_bytes())
    for _ in range(rng.randint(1, 8)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    path.write_bytes(data)
    with contextlib.suppress(ArchiveDamaged, InvalidArgument):
        newest(files)


async def test_who_may_not_read_the_grants_says_so(client: LogClient) -> None:
    """An archiver needs no more rights than before."""
    infos = await client.hakeeper.list_shards()
    found = await describe(client, infos, grants=True)
    assert found.grants is None
    assert {one.shard_id for one in found.logs} == {one.shard_id for one in infos}


async def test_denials_are_kept_and_given_with_the_grants(tmp_path: Path) -> None:
    """A restored cluster lets nobody in whom the first one shut out."""
    lay_out(tmp_path)
    who, everybody = uri("client", "me"), uri("client", "m*")
    async with secured(tmp_path) as store:
        tls = Tls(CLIENTS.pem, OWNER.certificate, OWNER.key)
        async with LogClient(store.client_address, tls=tls) as one:
            keeper = one.hakeeper
            await keeper.change_access(who, "*", grant=["read"])
            await keeper.change_denial(everybody, "name/log-*", deny=["all"])
            found = await describe(one, await keeper.list_shards(), grants=True)
            assert found.grants == (Grant(who, "*", ("read",)),)
            assert found.denials == (Grant(everybody, "name/log-*", ("all",)),)
            await keeper.change_access(who, "*", revoke=["read"])
            await keeper.change_denial(everybody, "name/log-*", undeny=["all"])
            await RestoreAll(one, Folder(tmp_path))._grant(found)
            listed = await keeper.access_list()
            assert [one.identity for one in listed.grants] == [who]
            assert [one.identity for one in listed.denials] == [everybody]


async def test_an_archive_without_a_document_is_not_restored_as_a_whole(
    client: LogClient, files: Folder
) -> None:
    mark(files, "c")
    for wrong in (None, document(cluster_id="d")):
        if wrong is not None:
            write(files, wrong)
        with pytest.raises(InvalidArgument, match="one by one"):
            await RestoreAll(client, files).run()


def test_the_retention_is_known_and_not_restored() -> None:
    """It would let go what was just brought back."""
    kept = LogEntry(
        shard_id=3, name="wal", replicas=3, state="open", protected=True, retention_age_s=60
    )
    policy = kept.policy()
    assert (kept.retention, policy.protected, policy.retention_age_s) == (True, True, 0)
    assert not LogEntry(shard_id=3, name="wal", replicas=3, state="open").retention
