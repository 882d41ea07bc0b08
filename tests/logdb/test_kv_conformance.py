"""One suite for every Kv: LevelDB and its twin in memory keep the same contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from logservice.logdb.io.kv import KvCorrupt, KvEngine, KvError
from logservice.logdb.io.leveldb_kv import LevelDbEngine, plyvel
from logservice.logdb.io.memory_kv import MemoryKvEngine
from logservice.logdb.io.posix_vfs import PosixVfs


@pytest.fixture(params=["memory", "leveldb"])
def engine(request: pytest.FixtureRequest) -> KvEngine:
    return MemoryKvEngine() if request.param == "memory" else LevelDbEngine(PosixVfs())


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "kv")


def test_what_was_written_is_read_after_reopening(engine: KvEngine, path: str) -> None:
    kv = engine.open(path)
    assert kv.get(b"a") is None
    kv.write([(b"a", b"1"), (b"b", b"2"), (b"c", b"")])
    kv.write([(b"b", b"3")], [b"a", b"b", b"zz"])
    kv.close()
    kv = engine.open(path)
    assert (kv.get(b"a"), kv.get(b"b"), kv.get(b"c")) == (None, b"3", b"")
    kv.close()


def test_scan_is_ordered_and_stays_inside_its_prefix(engine: KvEngine, path: str) -> None:
    kv = engine.open(path)
    kv.write([(bytes([65, n]), b"%d" % n) for n in (200, 3, 255, 0)] + [(b"B", b""), (b"@", b"")])
    assert list(kv.scan(b"A")) == [
        (b"A\x00", b"0"),
        (b"A\x03", b"3"),
        (b"A\xc8", b"200"),
        (b"A\xff", b"255"),
    ]
    assert next(key for key, _ in kv.scan(b"")) == b"@"
    assert list(kv.scan(b"x")) == []
    kv.close()


def test_a_closed_store_answers_nothing(engine: KvEngine, path: str) -> None:
    kv = engine.open(path)
    kv.close()
    kv.close()
    with pytest.raises(KvError):
        kv.get(b"a")
    with pytest.raises(KvError):
        kv.write([(b"a", b"")])
    with pytest.raises(KvError):
        list(kv.scan(b""))


def test_a_destroyed_store_is_empty(engine: KvEngine, path: str) -> None:
    kv = engine.open(path)
    kv.write([(b"a", b"1")])
    kv.close()
    engine.destroy(path)
    engine.destroy(path)
    kv = engine.open(path)
    assert kv.get(b"a") is None
    kv.close()


def test_the_first_failed_write_is_the_last(engine: KvEngine, path: str) -> None:
    """INV-KV-2."""
    kv = engine.open(path)
    if isinstance(engine, MemoryKvEngine):

        def fail() -> None:
            raise OSError(28, "full")

        engine.before_write = fail  # type: ignore[method-assign]
    else:
        database = kv._database  # type: ignore[attr-defined]

        class Failing:
            def write_batch(self, sync: bool) -> object:
                raise plyvel.IOError("full")

            def close(self) -> None:
                database.close()

        kv._database = Failing()  # type: ignore[attr-defined]
    with pytest.raises(KvError, match="full"):
        kv.write([(b"a", b"1")])
    with pytest.raises(KvError):
        kv.get(b"a")
    with pytest.raises(KvError):
        kv.write([(b"a", b"1")])
    # INV-KV-3: no later run trusts it, but it is still a witness.
    for _ in range(2):
        assert not engine.trusted(path)
        kv = engine.open(path)
        assert not engine.trusted(path)
        kv.close()
    engine.destroy(path)
    engine.open(path).close()
    assert engine.trusted(path)


def test_a_copy_is_read_and_the_store_stays_as_it_is(engine: KvEngine, path: str) -> None:
    with engine.open_copy(path) as nothing:
        assert nothing is None
    kv = engine.open(path)
    kv.write([(b"a", b"1"), (b"b", b"2")])
    kv.write([(b"a", b"3")])
    kv.close()
    with engine.open_copy(path) as copy:
        assert copy is not None
        copy.compact()
        assert list(copy.scan(b"")) == [(b"a", b"3"), (b"b", b"2")]
        copy.write([(b"c", b"4")])
    kv = engine.open(path)
    assert kv.get(b"c") is None
    assert engine.trusted(path)
    kv.close()


def test_memory_damage_is_noticed_until_destroyed() -> None:
    engine = MemoryKvEngine()
    engine.open("x").write([(b"a", b"1")])
    engine.damage("x")
    with pytest.raises(KvCorrupt):
        engine.open("x")
    engine.destroy("x")
    assert engine.open("x").get(b"a") is None


def test_a_half_created_leveldb_is_made_anew(tmp_path: Path) -> None:
    engine = LevelDbEngine(PosixVfs())
    path = str(tmp_path / "kv")
    (tmp_path / "kv").mkdir()
    (tmp_path / "kv" / "CURRENT").write_bytes(b"MANIFEST-000001\n")
    (tmp_path / "kv.new").mkdir()
    kv = engine.open(path)
    kv.write([(b"a", b"1")])
    kv.close()
    assert not (tmp_path / "kv.new").exists()
    kv = engine.open(path)
    assert kv.get(b"a") == b"1"
    kv.close()


def test_a_flipped_bit_in_leveldbs_log_is_told(tmp_path: Path) -> None:
    engine = LevelDbEngine(PosixVfs())
    path = tmp_path / "kv"
    kv = engine.open(str(path))
    for number in range(50):
        kv.write([(b"%d" % number, b"x" * 100)])
    kv.close()
    log = max(path.glob("*.log"))
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(bytes(data))
    with pytest.raises(KvCorrupt):
        engine.open(str(path))
