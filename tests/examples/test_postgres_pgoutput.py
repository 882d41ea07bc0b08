"""From what `pgoutput` says to changes: every kind of change, and garbage."""

from __future__ import annotations

import random

import pytest

from examples.postgres.protocol import EPOCH_2000_S, PostgresError, ProtocolError
from examples.postgres_changes.appends import RECORD_BYTES_MAX, record_of
from examples.postgres_changes.change import (
    MARK_PREFIX,
    Change,
    ChangeError,
    Entry,
    Mark,
    decode,
    key_of,
)
from examples.postgres_changes.keys import keys_of_record
from examples.postgres_changes.pgoutput import KEPT, Begin, Commit, Insert, Other, Update
from examples.postgres_changes.pgoutput import decode as message_of
from examples.postgres_changes.transactions import ShippingRefused, Transactions
from tests.examples import pgoutput_messages as pg

SYSTEM = (1 << 63) + 7
KNOWN = {("public", "t"): ("id",)}


async def no_keys(schema: str, table: str) -> tuple[str, ...]:
    return ()


async def id_is_key(schema: str, table: str) -> tuple[str, ...]:
    assert (schema, table) == ("public", "t")
    return ("id",)


async def changes(*messages: bytes, identity: str = "d", keys: object = id_is_key) -> list[Entry]:
    """Those of one transaction about a table of id, body, note."""
    made = Transactions(SYSTEM, KNOWN, keys)  # type: ignore[arg-type]
    found: list[Entry] = []
    columns = ("id", "body", "note")
    whole = [
        pg.begin(100),
        pg.relation(1, "t", columns, ["id"], identity),
        *messages,
        pg.commit(100, 120),
    ]
    for one in whole:
        assert made.open == (one[:1] not in b"B")
        found += await made.take(message_of(one))
    assert not made.open
    return found


# --- messages -------------------------------------------------------------------------------------


def test_messages() -> None:
    assert message_of(pg.begin(1 << 40)) == Begin(1 << 40)
    when = EPOCH_2000_S * 1_000_000 + 1_000_000
    assert message_of(pg.commit(5, 9)) == Commit(5, 9, when)
    assert message_of(pg.insert(3, "", None, "ü")) == Insert(3, ("", None, "ü"))
    assert message_of(pg.update(3, ["1", KEPT])) == Update(3, None, ("1", KEPT))
    assert message_of(b"Y" + bytes(9)) == Other()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"Z",
        b"B",
        pg.begin(1)[:-1],
        pg.begin(1) + b"x",
        pg.insert(1, "a")[:-1],
        pg.insert(1, "a") + b"x",
        pg.insert(1, "a").replace(b"N", b"K"),
        pg.insert(1, "a").replace(b"t", b"b"),
        b"I\0\0\0\1N\0\1t\xff\xff\xff\xff",
        b"I\0\0\0\1N\0\1t\0\0\0\1\xff",
        b"U\0\0\0\1X",
        b"D\0\0\0\1N\0\0",
        b"R\0\0\0\1public",
        b"T\0\0\0\2\0\0\0\0\1",
    ],
)
def test_a_message_without_form(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        message_of(data)


@pytest.mark.parametrize("seed", range(300))
async def test_garbage_ends_in_an_error_of_ours(seed: int) -> None:
    chance = random.Random(seed)
    messages = [
        pg.begin(100),
        pg.relation(1, "t", ("id", "body"), ["id"]),
        pg.insert(1, "1", "x"),
        pg.update(1, ["2", "y"], ["1", None]),
        pg.delete(1, "2", None),
        pg.truncate(1),
        pg.commit(100, 120),
    ]
    at = chance.randrange(len(messages))
    damaged = bytearray(messages[at])
    for _ in range(chance.randint(1, 3)):
        damaged[chance.randrange(len(damaged))] = chance.randrange(256)
    messages[at] = bytes(damaged)
    made = Transactions(SYSTEM, {}, no_keys)
    try:
        for one in messages:
            for entry in await made.take(message_of(one)):
                assert decode(entry.encode()) == entry
    except (PostgresError, ShippingRefused):
        pass  # a flipped bit in a value may also do no harm


# --- changes --------------------------------------------------------------------------------------


async def test_a_transaction() -> None:
    found = await changes(
        pg.insert(1, "1", "a", None), pg.delete(1, "1", None, None), pg.truncate(1)
    )
    row = {"id": "1", "body": "a", "note": None}
    assert found[:3] == [
        Change("I", 100, 0, "public", "t", '["1"]', row),
        Change("D", 100, 1, "public", "t", '["1"]'),
        Change("T", 100, 2, "public", "t"),
    ]
    mark = found[3]
    assert isinstance(mark, Mark)
    assert (mark.commit, mark.end, mark.changes, mark.system) == (100, 120, 3, SYSTEM)


async def test_a_transaction_without_a_change_leaves_nothing() -> None:
    assert await changes() == []


async def test_an_update_says_what_it_knows() -> None:
    (known, kept, _) = await changes(pg.update(1, ["1", "b", None]), pg.update(1, ["1", KEPT, "n"]))
    assert known == Change(
        "U", 100, 0, "public", "t", '["1"]', {"id": "1", "body": "b", "note": None}
    )
    assert kept == Change("U", 100, 1, "public", "t", '["1"]', {"id": "1", "note": "n"})


async def test_a_full_old_row_gives_what_was_kept() -> None:
    old = ["1", "large", "m"]
    (first, gone, come, _) = await changes(
        pg.update(1, ["1", KEPT, "n"], old, "O"),
        pg.update(1, ["2", KEPT, "n"], old, "O"),
        identity="f",
    )
    row = {"id": "1", "body": "large", "note": "n"}
    assert first == Change("U", 100, 0, "public", "t", '["1"]', row)
    assert gone == Change("D", 100, 1, "public", "t", '["1"]')
    assert come == Change("I", 100, 2, "public", "t", '["2"]', row | {"id": "2"})


async def test_a_key_that_changes() -> None:
    found = await changes(pg.update(1, ["2", "b", None], ["1", None, None]))
    assert [(one.op, one.key) for one in found if isinstance(one, Change)] == [
        ("D", '["1"]'),
        ("I", '["2"]'),
    ]


async def test_a_key_that_changes_under_a_value_that_nobody_tells() -> None:
    with pytest.raises(ShippingRefused, match="REPLICA IDENTITY FULL"):
        await changes(pg.update(1, ["2", KEPT, None], ["1", None, None]))


async def test_a_table_without_a_key_is_refused() -> None:
    made = Transactions(SYSTEM, {}, no_keys)
    await made.take(message_of(pg.begin(1)))
    for identity in ("d", "n", "f"):
        await made.take(message_of(pg.relation(1, "t", ["a"], [], identity)))
        with pytest.raises(ShippingRefused, match=r"public\.t has no published columns"):
            await made.take(message_of(pg.insert(1, "x")))


async def test_a_key_of_other_columns_is_refused() -> None:
    """INV-PG-KEYS: also one that the catalog names, and one after a change within the session."""

    async def note_is_key(schema: str, table: str) -> tuple[str, ...]:
        return ("note",)

    other = pg.relation(1, "t", ("id", "body", "note"), ["id", "note"])
    row = pg.insert(1, "1", "b", "n")
    for messages, keys in (([row, other, row], id_is_key), ([row], note_is_key)):
        with pytest.raises(ShippingRefused, match=r"public\.t has the key .*make a new copy"):
            await changes(*messages, identity="f" if keys is note_is_key else "d", keys=keys)


async def test_a_table_that_the_log_does_not_know() -> None:
    """It is named once, with all others."""
    relation = pg.relation(2, "late", ["a", "b", "c"], ["b", "c"])
    (said, come, _) = await changes(relation, relation, pg.insert(2, "1", "2", "3"))
    assert keys_of_record(said) == KNOWN | {("public", "late"): ("b", "c")}
    assert isinstance(come, Change)
    assert (come.seq, come.key) == (1, '["2","3"]')


async def test_a_key_that_is_null_is_none() -> None:
    with pytest.raises(ShippingRefused, match="a key is not in the stream"):
        await changes(pg.delete(1, None, "b", None))


async def test_a_key_is_not_mistaken_for_another() -> None:
    assert key_of(["a,b", "c"]) != key_of(["a", "b,c"])
    assert key_of(['a"', "b"]) != key_of(["a", '"b'])
    assert key_of([None]) != key_of(["null"])


async def test_a_table_that_gets_a_column() -> None:
    wider = pg.relation(1, "t", ("id", "body", "note", "new"), ["id"])
    (before, after, _) = await changes(
        pg.insert(1, "1", "a", None), wider, pg.insert(1, "2", "a", None, "x")
    )
    assert isinstance(before, Change)
    assert isinstance(after, Change)
    assert "new" not in (before.row or {})
    assert (after.row or {})["new"] == "x"


@pytest.mark.parametrize(
    "messages",
    [
        [pg.insert(1, "1")],
        [pg.commit(1, 2)],
        [pg.begin(1), pg.begin(2)],
        [pg.begin(1), pg.commit(2, 3)],
        [pg.begin(1), pg.insert(9, "1")],
        [pg.begin(1), pg.relation(1, "t", ["id"], ["id"]), pg.insert(1, "1", "2")],
    ],
)
async def test_what_has_no_place(messages: list[bytes]) -> None:
    made = Transactions(SYSTEM, {}, no_keys)
    with pytest.raises(ProtocolError):
        for one in messages:
            await made.take(message_of(one))


# --- records --------------------------------------------------------------------------------------


def test_records() -> None:
    row = {"id": "1", "x": 'ü "\n', "y": None}
    for entry in (
        Change("B", 5, 0),
        Change("R", 5, 1, "public", "t", key_of(["1"]), row),
        Change("D", 5, 2, "public", "t", key_of(["1"])),
        Change("T", 5, 3, "public", "t"),
        Mark(5, 9, 4, SYSTEM, 77, 3),
    ):
        assert decode(entry.encode()) == entry
        assert entry.encode().startswith(MARK_PREFIX) == isinstance(entry, Mark)
    assert Change("D", 5, 2, "s", "t", '["1"]').record_key() == b's.t ["1"]'
    assert Change("T", 5, 2, "s", "t").record_key() is None


@pytest.mark.parametrize("record", [b"", b"PGWL", b"[]", b"{}", b'{"op":"C","commit":1,"seq":1}'])
def test_a_record_that_is_no_change(record: bytes) -> None:
    with pytest.raises(ChangeError):
        decode(record)


def test_a_row_that_no_record_can_have() -> None:
    def sized(size: int) -> Change:
        return Change("I", 1, 0, "s", "t", '["1"]', {"a": "x" * size})

    rest = record_of(sized(0)).size
    assert record_of(sized(RECORD_BYTES_MAX - rest)).size == RECORD_BYTES_MAX
    with pytest.raises(ShippingRefused, match=str(RECORD_BYTES_MAX)):
        record_of(sized(RECORD_BYTES_MAX - rest + 1))
